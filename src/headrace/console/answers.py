"""JSON in and out, and errors as documents with a code and a sentence."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..api.base import Document, DocumentError, from_wire, read_json, to_wire
from ..errors import ConfigurationError, HeadraceError, JetStreamApiError
from ..errors import RequestTimeoutError as NoAnswerError
from ..groups.errors import GroupNotFoundError
from ..subjects import is_literal

_LOG: Final = logging.getLogger("headrace.console")

C = TypeVar("C", bound=Document)

Handler = Callable[[Request], Awaitable[Any]]

_NOT_FOUND: Final = frozenset({10014, 10037, 10059})  # consumer, message, stream


class RefusedError(Exception):
    """A request that is not accepted: its status, a code, and a sentence for the reader."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


def answer(document: Any, status: int = 200) -> Response:
    """A JSON answer, never kept by a cache."""
    return Response(
        msgspec.json.encode(document),
        status,
        {"cache-control": "no-store"},
        media_type="application/json",
    )


def problem(status: int, code: str, text: str) -> Response:
    """An error as a document."""
    return answer({"code": code, "message": text}, status)


def route(method: str, path: str, handler: Handler) -> Route:
    """A route whose handler returns a document, or a response; errors become answers."""

    async def handle(request: Request) -> Response:
        try:
            found = await handler(request)
        except RefusedError as error:
            return problem(error.status, error.code, error.text)
        except JetStreamApiError as error:
            status = 404 if error.err_code in _NOT_FOUND else 409
            return problem(status, f"server_{error.err_code}", error.description)
        except ConfigurationError as error:
            return problem(400, "not_accepted", str(error))
        except KeyError as error:  # KeyNotFoundError and its like: what was asked for is not there
            if not isinstance(error, HeadraceError):
                raise
            return problem(404, "not_found", str(error))
        except GroupNotFoundError as error:
            return problem(404, "not_found", str(error))
        except NoAnswerError as error:
            return problem(504, "no_answer", str(error) or "the server did not answer in time")
        except HeadraceError as error:
            return problem(502, "server_failed", str(error) or type(error).__name__)
        return found if isinstance(found, Response) else answer(found)

    return Route(path, handle, methods=[method])


async def unexpected(request: Request, error: Exception) -> Response:
    """Answer an error that nobody foresaw: the details are for the log alone."""
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "internal_error", "something went wrong here; the console's log tells what")


def attachment(name: str) -> str:
    """The Content-Disposition of a file to keep: no browser shows or runs it."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that was sent. Raises RefusedError."""
    try:
        document = read_json(await request.body() or b"{}")
    except DocumentError as error:
        raise RefusedError(400, "not_json", f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise RefusedError(400, "not_json", "the body has to be an object")
    return document


def config_of(document: dict[str, Any], kind: type[C]) -> C:
    """The field ``config``, as the JetStream API has it. Raises RefusedError."""
    said = document.get("config")
    if not isinstance(said, dict):
        raise RefusedError(400, "not_accepted", "config has to be an object")
    try:
        return from_wire(said, kind, strict=True)
    except DocumentError as error:
        raise RefusedError(400, "not_accepted", f"config: {error}") from error


def changes_between(before: Any, after: Any) -> list[dict[str, Any]]:
    """The fields of two configurations that differ, as the API has them; None is the default."""
    old, new = to_wire(before), to_wire(after)
    return [
        {"setting": name, "now": old.get(name), "then": new.get(name)}
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def text_of(document: dict[str, Any], name: str, default: str = "") -> str:
    """A text field. Raises RefusedError."""
    value = document.get(name, default)
    if not isinstance(value, str):
        raise RefusedError(400, "not_accepted", f"{name} has to be text")
    return value


def check_literal(subject: str, field: str = "") -> None:
    """Raise RefusedError unless something can be published to a subject."""
    if not is_literal(subject.encode("utf-8", "replace")):
        raise RefusedError(
            400, "not_accepted", f"{field}not a subject without wildcards: {subject[:200]!r}"
        )


def number_of(document: dict[str, Any], name: str, default: int = 0) -> int:
    """A whole number, 0 or more. Raises RefusedError."""
    value = document.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise RefusedError(400, "not_accepted", f"{name} has to be a whole number, 0 or more")
    return value


def query_number(request: Request, name: str, default: int, most: int) -> int:
    """A number of the query, at most ``most``. Raises RefusedError."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise RefusedError(
            400, "not_accepted", f"{name} has to be a whole number, not {text[:40]!r}"
        )
    return min(int(text), most)


def confirm(document: dict[str, Any], name: str) -> None:
    """Whatever destroys needs the name of what it destroys, typed by hand. Raises RefusedError."""
    if text_of(document, "confirm") != name:
        raise RefusedError(
            409, "not_confirmed", f"to confirm, the name {name!r} has to be typed exactly"
        )
