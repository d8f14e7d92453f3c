"""Certificates made for a test: an authority, and a pair for the loopback from it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Files of an authority and of a certificate that it signed."""

    ca: Path
    cert: Path
    key: Path


def make(folder: Path, name: str = "one") -> Certificates:
    """Makes a fresh authority and a certificate for 127.0.0.1 with the openssl command."""
    ca, ca_key = folder / f"{name}-ca.pem", folder / f"{name}-ca.key"
    cert, key, request = folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.csr"
    extensions = folder / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(
        "req",
        "-x509",
        *new_key,
        "-keyout",
        ca_key,
        "-out",
        ca,
        "-days",
        "2",
        "-subj",
        f"/CN=ca-{name}",
    )
    _openssl("req", *new_key, "-keyout", key, "-out", request, "-subj", "/CN=localhost")
    signing = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", extensions]
    _openssl("x509", "-req", "-in", request, "-out", cert, *signing)
    return Certificates(ca, cert, key)


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)
