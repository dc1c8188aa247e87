"""Pages of monitoring: over the system account, or over HTTP."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit

import click

from ...documents import DocumentError, read_json
from ...errors import NoRespondersError
from ..shared.errors import UNREACHABLE, Failure
from ..shared.verbs import Declare, Session

MONITOR: Final[Declare] = click.option(
    "--monitor",
    metavar="URL",
    default="",
    help="where the server's monitoring is, such as http://127.0.0.1:8222",
)
_PORT_DEFAULT: Final = 8222
_MORE_S: Final = 0.3  # how long further servers of a cluster are waited for
_SUBJECTS: Final = {"accstatz": "$SYS.REQ.ACCOUNT.PING.STATZ"}
_BYTES_MAX: Final = 64 * 1024 * 1024


async def pages(session: Session, name: str, monitor: str, **options: Any) -> list[dict[str, Any]]:
    """What each server says on this page, such as ``varz``.

    Asked for over the system account; otherwise over HTTP at ``monitor``, or at port 8222 of the server,
    if that is the same one. Raises Failure if none of these is there.
    """
    if monitor:
        return [await _fetched(monitor, name, options)]
    try:
        return await _asked(session, name, options)
    except NoRespondersError:
        pass  # no user of the system account
    host = urlsplit(session.connection.server).hostname or "127.0.0.1"
    url = f"http://{f'[{host}]' if ':' in host else host}:{_PORT_DEFAULT}"
    try:
        ident = (await _fetched(url, "varz", {}))["server_id"]
        if ident == session.connection.server_info.server_id:
            return [await _fetched(url, name, options)]
    except (Failure, KeyError):
        pass  # nobody there, or no NATS server
    raise Failure(
        "this user may not ask the server about itself, and its monitoring is not at port 8222",
        "--monitor http://HOST:PORT          where monitoring is (`headrace serve -m 8222` has it)",
        "--user NAME --password TEXT         a user of the system account",
    )


async def page(session: Session, name: str, monitor: str, **options: Any) -> dict[str, Any]:
    """What the server we are connected to says; in a cluster of the others, too."""
    found = await pages(session, name, monitor, **options)
    own = session.connection.server_info.server_id
    return next((each for each in found if each.get("server_id") == own), found[0])


async def _asked(session: Session, name: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    connection = session.connection
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox)
    subject = _SUBJECTS.get(name, f"$SYS.REQ.SERVER.PING.{name.upper()}")
    await connection.publish(subject, json.dumps(options).encode(), reply=inbox)
    found: list[dict[str, Any]] = []
    wait = session.where.timeout
    while True:
        try:
            answer = await subscription.next(wait)
        except TimeoutError:
            break
        if answer.headers.status is not None:
            raise NoRespondersError(subject)
        try:
            document = _object(answer.payload)
        except DocumentError as error:
            raise Failure(f"{name}: the answer cannot be read: {error}") from None
        if "error" in document:
            raise Failure(f"{name}: {document['error'].get('description', document['error'])}")
        found.append(document["data"])
        wait = _MORE_S if session.connection.server_info.cluster else 0.0
        if not wait:
            break
    await subscription.unsubscribe()
    if not found:
        raise Failure(
            f"no answer on {subject} within {session.where.timeout:g} s", status=UNREACHABLE
        )
    return found


def _object(data: bytes) -> dict[str, Any]:
    """What a server told. Raises DocumentError."""
    found = read_json(data)
    if not isinstance(found, dict):
        raise DocumentError("it is not a JSON object")
    return found


async def _fetched(url: str, name: str, options: dict[str, Any]) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise Failure(f"--monitor {url!r}: accepted is http://HOST:PORT")
    query = "&".join(f"{key}={_text(value)}" for key, value in options.items())
    address = f"{url.rstrip('/')}/{name.lower()}{'?' if query else ''}{query}"

    def fetch() -> dict[str, Any]:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 (checked above)
                return _object(answer.read(_BYTES_MAX))
        except urllib.error.HTTPError as error:
            return _object(error.read(_BYTES_MAX) or b"{}")

    try:
        return await asyncio.to_thread(fetch)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Failure(f"{address}: {reason}", status=UNREACHABLE) from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
