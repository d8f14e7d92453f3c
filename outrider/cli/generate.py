"""`outrider generate`: one text, streamed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from outrider.cli.checks import check_sampling
from outrider.cli.console import ending_well, err, out
from outrider.cli.door import Address, Ca, Door, Insecure, Token, speculative
from outrider.cli.pieces import Pieces
from outrider.cli.up import Drafters, Dtype, Target
from outrider.client import Client
from outrider.requests import DEFAULT_MAX_TOKENS, Options
from outrider.results import Chunk, GenerationResult, ServerInfo

STYLES = {"accepted": "green", "recovered": "yellow", "bonus": "cyan", "plain": "default"}
MARKS = {"accepted": ("[", "]"), "recovered": ("<", ">"), "bonus": ("{", "}"), "plain": ("", "")}
"""What stands around a token where there are no colours."""


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to go on from.")],
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a user's message.")] = False,
    address: Address = None,
    max_tokens: Annotated[int, typer.Option(help="Most tokens.")] = DEFAULT_MAX_TOKENS,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    min_p: Annotated[
        float, typer.Option(help="Of the likeliest token's probability; 0 is off.")
    ] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="The text ends before it. May be repeated.")
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on behind the end of the text.")
    ] = False,
    method: Annotated[
        str | None, typer.Option(help="A drafter, or plain. Default: the server's.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=0, help="Fixed depth. Default: the server's.")
    ] = None,
    show_tokens: Annotated[
        bool,
        typer.Option(
            "--show-tokens",
            help="Colour tokens by kind, or bracket them where there are no colours.",
        ),
    ] = False,
    tokenizer: Annotated[
        str | None, typer.Option(help="For --show-tokens. Default: the target's.")
    ] = None,
    token: Token = None,
    ca: Ca = None,
    insecure: Insecure = False,
    target: Target = "default",
    drafter: Drafters = None,
    dtype: Dtype = "auto",
) -> None:
    """Generate a text and stream it."""
    door = Door(address, token, ca, insecure, target, drafter or None, dtype)
    options: Options = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
        "stop": stop,
        "ignore_eos": ignore_eos,
        "speculative": speculative(method, k),
    }
    with ending_well(), ExitStack() as stack:
        check_sampling(options)
        client = stack.enter_context(door.open())
        # Before the clock starts: loading the tokenizer takes seconds.
        decode = _decoder(tokenizer or target, client.info()) if show_tokens else None
        started = time.perf_counter()
        chunks = _chunks(client, prompt, chat, options)
        result = (
            _print_plain(out(), chunks) if decode is None else _print_tokens(out(), chunks, decode)
        )
        err().print(summary(result, time.perf_counter() - started), style="dim")


def _chunks(
    client: Client, prompt: str, chat: bool, options: Options
) -> Generator[Chunk, None, None]:
    if chat:
        return client.stream_chat([{"role": "user", "content": prompt}], **options)
    return client.stream(prompt, **options)


def _print_plain(console: Console, chunks: Iterable[Chunk]) -> GenerationResult:
    result = None
    for chunk in chunks:
        console.print(chunk.text, end="")
        result = chunk.result
    console.print()
    assert result is not None, "a stream ends with its result or raises"
    return result


def _print_tokens(
    console: Console, chunks: Iterable[Chunk], decode: Callable[[Sequence[int]], str]
) -> GenerationResult:
    coloured = console.color_system is not None and not console.no_color
    console.print(Text(" ").join(_shown(kind, kind, coloured) for kind in STYLES))
    pieces = Pieces(decode)
    result = None
    for chunk in chunks:
        for token_id, kind in zip(chunk.token_ids, chunk.kinds, strict=True):
            console.print(_shown(pieces.add(token_id), kind, coloured), end="")
        result = chunk.result
    console.print(pieces.rest())
    assert result is not None, "a stream ends with its result or raises"
    return result


def _shown(piece: str, kind: str, coloured: bool) -> Text:
    if coloured or not piece:
        return Text(piece, style=STYLES[kind])
    before, behind = MARKS[kind]
    return Text(f"{before}{piece}{behind}")


def _decoder(spec: str, info: ServerInfo) -> Callable[[Sequence[int]], str]:
    from outrider.models.tokenizer import load_tokenizer, tokenizer_fingerprint  # heavy

    tokenizer = load_tokenizer(spec)
    if tokenizer_fingerprint(tokenizer) != info.model.tokenizer_fingerprint:
        raise ValueError(f"tokenizer: {spec!r} is not that of the served model {info.model.name}")

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    return decode


def summary(result: GenerationResult, seconds: float) -> str:
    """One line about a finished text."""
    tokens = result.usage.completion_tokens
    parts = [
        f"{tokens} tokens in {seconds:.2f} s ({tokens / seconds:.1f} tokens/s)",
        result.finish_reason,
    ]
    report = result.speculation
    if report.rounds:
        parts.append(
            f"{report.method}: {report.rounds} rounds, "
            f"acceptance rate {report.acceptance_rate:.2f}, "
            f"acceptance length {report.acceptance_length:.2f}"
        )
    else:
        parts.append("plain")
    parts.append("exact" if result.exact else "not exact")
    if result.numerics.quantised:
        parts.append(f"{result.target_quantization} target")
    return "; ".join(parts)
