"""Tokens come from a file or the environment: an argument shows them to all who list processes."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path
from typing import Any, Final

import click

from ..shared.errors import Failure
from ..shared.verbs import Declare

__all__ = [
    "CHANNEL_TOKEN",
    "PRODUCER_TOKEN",
    "TOKEN",
    "read_secret",
    "take_tokens",
    "token_option",
    "trusted",
]

_BYTES_MAX: Final = 64 * 1024
_FROM: Final = {
    "token": "HEADRACE_JOBS_TOKEN",
    "channel_token": "HEADRACE_JOBS_CHANNEL_TOKEN",
    "producer_token": "HEADRACE_JOBS_PRODUCER_TOKEN",
}


def token_option(name: str, text: str) -> tuple[Declare, ...]:
    """``--NAME-file``, and the option that it is instead of."""
    option = f"--{name.replace('_', '-')}"
    return (
        click.option(
            f"{option}-file",
            type=click.Path(path_type=Path, allow_dash=True),
            metavar="FILE",
            help=f"{text}: a file, or - for standard input (or {_FROM[name]})",
        ),
        click.option(option, help=f"deprecated: others see it; use {option}-file or {_FROM[name]}"),
    )


TOKEN: Final = token_option("token", "the consumer's token")
CHANNEL_TOKEN: Final = token_option("channel_token", "the channel's token")
PRODUCER_TOKEN: Final = token_option("producer_token", "the producer's token")


def take_tokens(values: dict[str, Any]) -> list[str]:
    """Put into ``values`` the tokens that files and the environment have. Returns what is to be said of it.

    Raises Failure for a file that cannot be read or is empty, and for two ways at once.
    """
    said = []
    dashes = [name for name in _FROM if str(values.get(f"{name}_file")) == "-"]
    if len(dashes) + (values.get("payload") == "-") > 1:
        raise Failure("standard input is read once: only one of payload and tokens is `-`")
    for name, variable in _FROM.items():
        if f"{name}_file" not in values:
            continue
        option, path = f"--{name.replace('_', '-')}", values.pop(f"{name}_file")
        given = values.get(name)
        if path is not None and given is not None:
            raise Failure(f"{option}-file goes without {option}")
        if given is not None:
            said.append(
                f"{option} shows the token to whoever lists this machine's processes, and is deprecated: "
                f"use {option}-file FILE (- is standard input) or {variable}"
            )
        elif path is not None:
            values[name] = read_secret(path, f"{option}-file")
        else:
            values[name] = os.environ.get(variable) or None
    return said


def read_secret(path: Path, option: str) -> str:
    """What a file, or standard input, has for ``option``, without the ends of lines around it.

    Raises Failure, which says what is wrong with the file and nothing of what is in it.
    """
    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read(_BYTES_MAX)
        else:
            with path.open("rb") as file:
                raw = file.read(_BYTES_MAX)
        text = raw.decode()
    except OSError as error:
        raise Failure(f"{option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{option} {path}: this is no text") from None
    secret = text.strip("\r\n")
    if not secret:
        raise Failure(f"{option} {path}: there is nothing in it")
    return secret


def trusted(url: str) -> ssl.SSLContext | None:
    """Whom to trust at an https URL: the authorities in the file of HEADRACE_JOBS_CA_FILE, if given."""
    path = os.environ.get("HEADRACE_JOBS_CA_FILE")
    if not path or not url.lower().startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError is one
        raise Failure(f"HEADRACE_JOBS_CA_FILE {path}: {error}; accepted is a PEM file") from None
