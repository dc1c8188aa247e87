"""One route, declared once: served by ``app``, described by ``openapi``, checked by the contract tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...runtime.runtime import Runtime

__all__ = ["CURSORS", "Endpoint", "Handler", "Parameter", "is_legacy", "reply"]

Handler = Callable[[Runtime, Request], Awaitable[Response]]

_EVERYWHERE: Final = (429, 503)
"""The statuses of problems that every endpoint may answer with."""

CHANNEL_TOKENS: Final = ("X-Broker-Channel-Token",)
CONSUMER_TOKENS: Final = ("X-Broker-Channel-Token", "X-Broker-Consumer-Token")
PRODUCER_TOKENS: Final = (
    "X-Broker-Channel-Token",
    "X-Broker-Producer-ID",
    "X-Broker-Producer-Token",
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header."""

    name: str
    text: str
    where: str = "query"
    type: str = "string"


CURSORS: Final = (
    Parameter("next", "the cursor a page gave for the page after it"),
    Parameter("previous", "the cursor a page gave for the page before it"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A method on a path.

    ``body`` is the struct of a JSON body, ``form`` the fields of a form. ``answers`` maps every status of
    the handler to the struct of its body (``None``: empty, ``str``: text). ``tokens`` are the headers it
    checks; ``admin`` means that the admin token is required if one is set. ``errors``: the statuses of its
    problems beside those that follow from what it is, see :attr:`problems`. ``scopes``: which of them an API
    key has to have, where it is not what :attr:`needed` says. ``audited``: a change that is written into the
    audit log, with its refusals.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answers: Mapping[int, Any]
    tag: str
    body: Any = None
    body_may_be_empty: bool = False
    form: tuple[Parameter, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    tokens: tuple[str, ...] = ()
    admin: bool = False
    errors: tuple[int, ...] = field(default=())
    scopes: tuple[str, ...] = ()
    audited: bool = False

    @property
    def legacy(self) -> bool:
        """Whether it is the specification's."""
        return is_legacy(self.path)

    @property
    def problems(self) -> frozenset[int]:
        """The statuses of all problems that it may answer with."""
        found = {*self.errors, *_EVERYWHERE}
        if self.admin or self.tokens or self.scopes:
            found |= {401, 403}
        if self.body is not None or self.form:
            found |= {400, 413, 415}
        if any(parameter.where == "query" for parameter in self.parameters):
            found.add(400)
        if "{" in self.path:
            found.add(404)
        return frozenset(found)

    @property
    def needed(self) -> tuple[str, ...]:
        """Scopes of an API key of which one is needed; none: no key is asked for."""
        if self.scopes:
            return self.scopes
        if self.tokens == PRODUCER_TOKENS:
            return ("publish",)
        found: tuple[str, ...] = ("consume",) if self.tokens == CONSUMER_TOKENS else ()
        if self.admin:
            found += ("operate",) if self.method == "GET" else ("admin",)
        return found


def is_legacy(path: str) -> bool:
    """Whether a path is the specification's: its errors are plain text unless the client accepts JSON."""
    return not path.startswith(("/v2/", "/health/"))


def reply(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(
        msgspec.json.encode(body), status, dict(headers or {}), media_type="application/json"
    )
