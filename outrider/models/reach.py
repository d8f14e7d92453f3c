"""Whether a hub model can be had at all, found out in one try.

transformers asks an unreachable hub again and again for most of a minute.
"""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request

from outrider.models.progress import ModelSpecError

TIMEOUT_S = 5.0
HUB = "https://huggingface.co"


def check_reachable(hub_id: str) -> None:
    """Returns where the model is cached or its hub answers anything at all.

    Raises:
        ModelSpecError: neither is so.
    """
    from huggingface_hub import constants, try_to_load_from_cache  # heavy

    if constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(hub_id, "config.json"), str):
        return
    address = os.environ.get("HF_ENDPOINT") or HUB
    reason = why_unreachable(address)
    if reason:
        raise ModelSpecError(
            f"model {hub_id!r}: is no directory or file and not in the hub's cache, "
            f"and the hub {address} cannot be reached: {reason}"
        )


def why_unreachable(address: str) -> str:
    """Why nothing at an http address answers within `TIMEOUT_S`; empty where something does."""
    try:
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - the user's endpoint
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()  # noqa: S310 - as above
    except urllib.error.HTTPError as error:
        error.close()  # an answer
    except ValueError as error:
        return str(error)
    except OSError as error:
        cause = getattr(error, "reason", error)
        # Whom to trust is set otherwise in the hub's own library.
        return "" if isinstance(cause, ssl.SSLError) else str(cause)
    return ""
