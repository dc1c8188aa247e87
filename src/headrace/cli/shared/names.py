"""Arguments that name something at the server, and complete it in the shell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import click

from ...errors import HeadraceError, JetStreamApiError
from .connection_options import given_above, where
from .errors import Failure
from .output import Output
from .verbs import Declare, connected

if TYPE_CHECKING:
    from ...client import JetStream

_COMPLETING_S: Final = 1.0  # a shell waits for it

Listed = Callable[["JetStream", dict[str, Any]], AsyncIterator[str]]


def _completing(listed: Listed) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        import asyncio

        async def ask() -> list[str]:
            given = {**given_above(context), "timeout": _COMPLETING_S}
            async with asyncio.timeout(_COMPLETING_S), connected(where(given), Output()) as session:
                return [name async for name in listed(session.js, context.params)]

        try:
            names = asyncio.run(ask())
        except (HeadraceError, TimeoutError):
            return []  # a shell that completes shows no errors
        return [name for name in sorted(names) if name.startswith(begun)]

    return complete


async def _keys(js: JetStream, given: dict[str, Any]) -> AsyncIterator[str]:
    bucket = await js.key_value(given.get("bucket") or "")
    for key in await bucket.keys():
        yield key


async def _objects(js: JetStream, given: dict[str, Any]) -> AsyncIterator[str]:
    store = await js.object_store(given.get("bucket") or "")
    for each in await store.list():
        yield each.name


async def _groups(js: JetStream, given: dict[str, Any]) -> AsyncIterator[str]:
    from ...groups import elastic, static

    stream = given.get("stream") or ""
    names = [each.name for each in await elastic.list(js, stream)]
    for name in (*names, *[each.name for each in await static.list(js, stream)]):
        yield name


STREAMS: Final = _completing(lambda js, given: js.stream_names())
CONSUMERS: Final = _completing(lambda js, given: js.consumer_names(given.get("stream") or ""))
BUCKETS: Final = _completing(lambda js, given: js.key_values())
KEYS: Final = _completing(_keys)
OBJECT_NAMES: Final = _completing(_objects)
GROUPS: Final = _completing(_groups)

STREAM: Final[Declare] = click.argument("stream", shell_complete=STREAMS)
CONSUMER: Final[Declare] = click.argument("consumer", shell_complete=CONSUMERS)
BUCKET: Final[Declare] = click.argument("bucket", shell_complete=BUCKETS)
OBJECTS: Final[Declare] = click.argument(
    "bucket", shell_complete=_completing(lambda js, given: js.object_stores())
)


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
