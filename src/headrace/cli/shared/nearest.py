"""Which stream, consumer or bucket may have been meant, when there is none of the name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

import click

from ...client import JetStream
from ...errors import JetStreamApiError
from .errors import Failure

_NO_CONSUMER: Final = 10014
_NO_STREAM: Final = 10059
_SHOWN: Final = 5


async def tell_nearest(js: JetStream, given: Mapping[str, Any], error: JetStreamApiError) -> None:
    """Raises Failure with the nearest names, if ``error`` says that something is not there."""
    if error.err_code == _NO_CONSUMER and given.get("stream") and given.get("consumer"):
        stream, name = given["stream"], given["consumer"]
        known = [name async for name in js.consumer_names(stream)]
        where = f" of stream {stream!r}"
        command = f"headrace consumer create {stream} {name}"
        raise _failure("consumer", name, known, where, command) from error
    if error.err_code != _NO_STREAM:
        return
    above = click.get_current_context().parent
    kind = "object" if above is not None and above.command.name == "object" else "kv"
    buckets = js.object_stores() if kind == "object" else js.key_values()
    for what, listed in (
        ("bucket", [name async for name in buckets]),
        (
            "stream",
            [n async for n in js.stream_names() if not n.startswith(("KV_", "OBJ_"))],
        ),
    ):
        name = given.get(what)
        if isinstance(name, str) and name and name not in listed:
            command = f"headrace {kind} add" if what == "bucket" else "headrace stream create"
            raise _failure(what, name, listed, "", f"{command} {name}") from error


def _failure(what: str, name: str, known: list[str], where: str, command: str) -> Failure:
    near = get_close_matches(name, known, 1)
    if near:
        return Failure(f"there is no {what} {name!r}{where}; did you mean {near[0]!r}?")
    if not known:
        return Failure(
            f"there is no {what} {name!r}{where}, nor any other", f"{command}    creates it"
        )
    more = ", …" if len(known) > _SHOWN else ""
    return Failure(
        f"there is no {what} {name!r}{where}; there are: {', '.join(sorted(known)[:_SHOWN])}{more}"
    )
