"""The short way of a request to its handler: the endpoints in a table, by method and number of segments.

Starlette asks one pattern after the other, and wraps each request several times: more than a whole publish
costs otherwise. What no endpoint is for (another method, a slash too many, nothing at all) goes to its
application, and so is answered as before.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, overload

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..request.endpoint import Endpoint

__all__ = ["Front"]

T = TypeVar("T")
_NAME: Final = re.compile(r"{(\w+)}\Z")

Handle = Callable[[Request], Awaitable[Response]]
Failed = Callable[[Request, Exception], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Way:
    """One endpoint: the segments that its path always has, and those that are names, by place."""

    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    handle: Handle

    def names(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The names in a path, or None if it is another endpoint's."""
        for place, text in self.fixed:
            if segments[place] != text:
                return None
        found = {name: segments[place] for place, name in self.named}
        return found if all(found.values()) else None


class Front:
    """An ASGI application.

    Args:
        rest: answers what no endpoint is for.
        endpoints: with what handles each; of two that a path fits, the first is taken.
        refused: answers an error that a handler raised on purpose, of a type in ``errors``.
        unexpected: answers any other, before it is raised to the server.
    """

    def __init__(
        self,
        rest: ASGIApp,
        endpoints: Sequence[tuple[Endpoint, Handle]],
        errors: dict[type[Exception], Failed],
        unexpected: Failed,
    ) -> None:
        self._rest = rest
        self._errors = errors
        self._unexpected = unexpected
        self._ways: dict[tuple[str, int], list[_Way]] = {}
        for endpoint, handle in endpoints:
            segments = endpoint.path.split("/")
            names = {
                place: found[1]
                for place, text in enumerate(segments)
                if (found := _NAME.match(text))
            }
            fixed = [(place, text) for place, text in enumerate(segments) if place not in names]
            # The last segments differ most.
            way = _Way(tuple(reversed(fixed)), tuple(names.items()), handle)
            self._ways.setdefault((endpoint.method, len(segments)), []).append(way)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handle = self._find(scope) if scope["type"] == "http" else None
        if handle is None:
            await self._rest(scope, receive, send)
            return
        request = _Request(scope, receive, send)
        defect: Exception | None = None
        try:
            response = await handle(request)
        except Exception as error:
            answer = next(
                (self._errors[kind] for kind in type(error).__mro__ if kind in self._errors), None
            )
            defect = error if answer is None else None
            response = await (answer or self._unexpected)(request, error)
        await response(scope, receive, send)
        if defect is not None:
            raise defect

    def _find(self, scope: Scope) -> Handle | None:
        """What handles a request; the names in its path are put into ``scope``."""
        path: str = scope["path"]
        if scope.get("root_path") or "\n" in path:  # Starlette has rules for both
            return None
        segments = path.split("/")
        for way in self._ways.get((scope["method"], len(segments)), ()):
            if (names := way.names(segments)) is not None:
                scope["path_params"] = names
                return way.handle
        return None


class _Request(Request):
    """A request that finds its headers in a table: a publish asks for a dozen."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self._headers = _Headers(scope=scope)


class _Headers(Headers):
    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        self._first = dict(reversed(self._list))  # of a header that is there twice, the first

    def __getitem__(self, key: str) -> str:
        try:
            return self._first[key.lower().encode("latin-1")].decode("latin-1")
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower().encode("latin-1") in self._first

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, /, default: str | T) -> str | T: ...
    def get(self, key: str, /, default: object = None) -> object:
        found = self._first.get(key.lower().encode("latin-1"))
        return default if found is None else found.decode("latin-1")
