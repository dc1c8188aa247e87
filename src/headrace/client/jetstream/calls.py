"""Calls to the JetStream API: a subject, a document, an answer. Shared by context, streams, consumers."""

from __future__ import annotations

import typing
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from ...api.base import Document, DocumentError, encode
from ...api.envelope import decode_response
from ...api.names import API_PREFIX
from ...api.times import format_time
from ...errors import ConfigurationError, HeadraceError, NoRespondersError, ProtocolError
from ..net.leaders import is_leaderless, is_unanswered, patiently

if TYPE_CHECKING:
    from ..net.session import Session

__all__ = ["Api", "config_from"]

D = TypeVar("D", bound=Document)
P = TypeVar("P", bound=Document)
T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME_FORBIDDEN = frozenset(" \t\r\n.*>/\\")


class Api:
    """The JetStream API of one account, reached through ``session``.

    Args:
        prefix: where its subjects begin: ``$JS.API``, or ``$JS.<domain>.API``, or an import's.
        timeout: seconds to wait for an answer.
        delivery_timeout: seconds in which a call is made again, while there is no leader to answer it.
    """

    __slots__ = ("batches_at", "delivery_timeout", "prefix", "session", "timeout")

    def __init__(
        self,
        session: Session,
        prefix: str = API_PREFIX,
        timeout: float = 5.0,
        delivery_timeout: float = 120.0,
    ) -> None:
        self.session = session
        self.prefix = prefix
        self.timeout = timeout
        self.delivery_timeout = delivery_timeout
        self.batches_at = ""  # the server known to understand batches, whatever its API level

    def subject(self, *tokens: str) -> str:
        """The subject of a call."""
        return ".".join((self.prefix, *tokens))

    async def call(
        self,
        kind: type[D],
        tokens: tuple[str, ...],
        request: Document | None = None,
        *,
        repeatable: bool = False,
    ) -> D:
        """Ask and read the answer; in a cluster, wait for a leader who answers.

        A server that says that it does not lead has done nothing, so any call is made again then. One
        without an answer may have been executed: it is made again only if it is ``repeatable``. That is a
        call that reads, or sets something to a given value: done twice it finds nothing to do, and what
        others did in between it cannot destroy, but for the value itself. It is none that removes: what
        has come since would go, too.

        Raises:
            JetStreamApiError: the server refused.
            NoRespondersError: there is no JetStream here.
            TimeoutError, DisconnectedError: no answer came.
            ProtocolError: what came is no answer of JetStream.
        """
        body = encode(request) if request is not None else b""
        try:
            return await self._ask(kind, tokens, body)
        except HeadraceError as error:
            if not self._may_wait(error, repeatable):
                raise
            failed = error
        words = f"stream {tokens[2]!r}" if tokens[:2] == ("STREAM", "INFO") else "JetStream"

        async def awaited(error: HeadraceError) -> str:
            return words if self._may_wait(error, repeatable) else ""

        return await patiently(
            self.session,
            self.delivery_timeout,
            lambda: self._ask(kind, tokens, body),
            awaited,
            failed,
        )

    async def read(self, of: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of ``attempt``, which reads; in a cluster it is made again while nobody answers."""

        async def awaited(error: HeadraceError) -> str:
            return of if self._may_wait(error, repeatable=True) else ""

        return await patiently(self.session, self.delivery_timeout, attempt, awaited)

    def _may_wait(self, error: HeadraceError, repeatable: bool) -> bool:
        return is_leaderless(error) or (repeatable and is_unanswered(self.session, error))

    async def _ask(self, kind: type[D], tokens: tuple[str, ...], body: bytes) -> D:
        subject = self.subject(*tokens)
        try:
            answer = await self.session.requests.ask(subject, b"", body, self.timeout)
        except NoRespondersError:
            raise NoRespondersError(
                f"no answer on {subject!r}: JetStream is not enabled on {self.session.server}, "
                "or not for this account"
            ) from None
        try:
            return decode_response(answer[5], kind)
        except DocumentError as error:
            raise ProtocolError(f"the answer on {subject!r} is not understood: {error}") from error

    async def pages(
        self,
        kind: type[P],
        tokens: tuple[str, ...],
        request: Callable[[int], Document],
        items: Callable[[P], tuple[Any, ...]],
        total: Callable[[P], int],
    ) -> AsyncIterator[Any]:
        """Every item of a listing that comes in pages; ``request`` is given each page's offset."""
        offset = 0
        while True:
            page = await self.call(kind, tokens, request(offset), repeatable=True)
            found = items(page)
            for item in found:
                yield item
            offset += len(found)
            if not found or offset >= total(page):
                return


def check_name(what: str, name: str) -> str:
    """Return ``name`` if it can be part of an API subject. Raises ConfigurationError otherwise."""
    bad = next((c for c in name if c in _NAME_FORBIDDEN or not c.isprintable()), None)
    if not name or bad is not None:
        why = "is empty" if not name else f"has {bad!r}"
        raise ConfigurationError(
            f"{what} name {name!r} {why}; accepted is text without spaces, '.', '*', '>', '/', '\\'"
        )
    return name


def config_from(kind: type[D], config: D | None, values: dict[str, Any]) -> D:
    """A configuration from a document, from keywords, or from both (the keywords win).

    In keywords a duration may be a timedelta, a time a datetime, a sequence a list.
    """
    known = set(kind.__struct_fields__)
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigurationError(
            f"{kind.__name__} has no field {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    fields = {name: _plain(value) for name, value in values.items()}
    given = {} if config is None else {n: getattr(config, n) for n in kind.__struct_fields__}
    return kind(**{**given, **{n: _checked(kind, n, value) for n, value in fields.items()}})


def _checked(kind: type[Document], name: str, value: Any) -> Any:
    """``value``, if it is what the field ``name`` may be; one text where a list of them is wanted is a
    list of one. Raises ConfigurationError."""
    expected = _types_of(kind)[name]
    if isinstance(value, str) and typing.get_origin(expected) is tuple:
        value = (value,)
    try:
        return msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        if typing.get_origin(expected) is Literal:
            accepted = ", ".join(map(repr, typing.get_args(expected)))
            raise ConfigurationError(f"{name} is {value!r}; accepted: {accepted}") from None
        is_duration = name in kind.durations
        hint = "; accepted are seconds, or a timedelta" if is_duration else ""
        raise ConfigurationError(f"{name} is {value!r:.200}: {error}{hint}") from None


@cache
def _types_of(kind: type[Document]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, (list, set, frozenset)):
        return tuple(_plain(item) for item in value)
    return value


def seconds(duration: float | timedelta) -> float:
    """A duration in either form."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def moment(time: datetime | None) -> str | None:
    """``time_text`` of a time that may be absent."""
    return None if time is None else time_text(time)


def time_text(moment: datetime) -> str:
    """RFC 3339 for a datetime; without a zone it is taken as local time, as Python does."""
    difference = moment.astimezone(UTC) - _EPOCH
    microseconds = (difference.days * 86_400 + difference.seconds) * 1_000_000
    return format_time((microseconds + difference.microseconds) * 1_000)
