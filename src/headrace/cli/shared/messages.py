"""Messages for people and for programs, in the order in which they come; headers and payloads as typed."""

from __future__ import annotations

import asyncio
import base64
import random
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ...client.nuid import Nuid
from ...wire.headers import Headers
from .asking import read_all
from .errors import Failure
from .output import printable

if TYPE_CHECKING:
    from ...client import Message


HEADER: Final = click.option(
    "-H", "--header", "header", multiple=True, metavar="NAME:VALUE", help="repeatable"
)

_FIELD: Final = re.compile(r"\{\{\s*\.?(\w+)((?:\s+\d+)*)\s*\}\}")
_HEX_SHOWN: Final = 256


def document(
    subject: str,
    payload: bytes,
    headers: Headers,
    **more: Any,
) -> dict[str, Any]:
    """A message for programs: text as ``payload``, anything else in Base64 as ``payload_base64``."""
    found: dict[str, Any] = {"subject": subject}
    found.update({key: value for key, value in more.items() if value not in ("", None)})
    if headers:
        named: dict[str, list[str]] = {}
        found["headers"] = named
        for name, value in headers.items():
            named.setdefault(name, []).append(value)
    try:
        found["payload"] = payload.decode()
    except UnicodeDecodeError:
        found["payload_base64"] = base64.b64encode(payload).decode()
    return found


def text(first: str, payload: bytes, headers: Headers) -> str:
    """A message for people: a first line, headers, an empty line, the payload."""
    lines = [printable(first)]
    lines += [printable(f"{name}: {value}") for name, value in headers.items()]
    body = payload_text(payload)
    return "\n".join([*lines, *(["", body, ""] if body else [""])])


def payload_text(payload: bytes) -> str:
    """Text if it is text, otherwise hexadecimal."""
    try:
        found = payload.decode()
    except UnicodeDecodeError:
        more = f" … ({len(payload):,} bytes)" if len(payload) > _HEX_SHOWN else ""
        return f"0x{payload[:_HEX_SHOWN].hex()}{more}"
    return "\n".join(printable(line.rstrip("\r")) for line in found.split("\n"))


def time_of(timestamp_ns: int) -> str:
    """A timestamp in nanoseconds as RFC 3339, to the millisecond."""
    moment = datetime.fromtimestamp(timestamp_ns / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def headers_of(given: Iterable[str]) -> dict[str, list[str]]:
    """``Name:value`` of the command line, each name once or more. Raises Failure."""
    found: dict[str, list[str]] = {}
    for each in given:
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise Failure(f"header {each!r}: accepted is NAME:VALUE")
        found.setdefault(name.strip(), []).append(value.strip())
    return found


def payload_of(body: str | None) -> bytes:
    """The body that was typed; without one, or with ``-``, standard input."""
    if body is not None and body != "-":
        return body.encode()
    return read_all()


def fill_in(template: str, count: int = 1, request: str = "", line: str = "") -> str:
    """Fill in ``{{Count}}``, ``{{Time}}``, ``{{TimeStamp}}``, ``{{Unix}}``, ``{{UnixNano}}``, ``{{ID}}``,
    ``{{Random 1 10}}`` (so many letters), ``{{Request}}`` and ``{{Line}}``; anything else stays as it is."""

    def value(found: re.Match[str]) -> str:
        name, numbers = found[1], [int(number) for number in found[2].split()]
        now = datetime.now(UTC)
        known = {
            "Count": lambda: str(count),
            "Cnt": lambda: str(count),
            "Time": lambda: now.astimezone().strftime("%X"),
            "TimeStamp": lambda: now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "Unix": lambda: str(int(time.time())),
            "UnixNano": lambda: str(time.time_ns()),
            "ID": lambda: Nuid().next(),
            "Request": lambda: request,
            "Line": lambda: line,
        }
        if name == "Random" and 1 <= len(numbers) <= 2:
            length = random.randint(*sorted((numbers[0], numbers[-1])))
            return "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))
        return known[name]() if name in known and not numbers else found[0]

    return _FIELD.sub(value, template)


MESSAGES_MAX: Final = 100_000


class Arrivals:
    """Hand ``put`` to each subscription as its callback, and iterate.

    Up to ``MESSAGES_MAX`` wait to be shown; what comes beyond that is dropped.

    Attributes:
        dropped: how many were.
    """

    def __init__(self, most: int = MESSAGES_MAX) -> None:
        self.dropped = 0
        self._queue: asyncio.Queue[Message] = asyncio.Queue(most)

    def put(self, message: Message) -> None:
        """One has come."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self.dropped += 1

    def __aiter__(self) -> Arrivals:
        return self

    async def __anext__(self) -> Message:
        return await self._queue.get()
