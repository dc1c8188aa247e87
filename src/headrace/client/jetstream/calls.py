"""Calls to the JetStream API: a subject, a document, an answer. Shared by context, streams, consumers."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ...api.base import Document, encode
from ...api.consumers import ConsumerListResponse, ConsumerNamesResponse
from ...api.envelope import read_answer
from ...api.errors import is_leaderless
from ...api.names import API_PREFIX
from ...api.streams import StreamListResponse, StreamNamesRequest, StreamNamesResponse
from ...errors import ConfigurationError, HeadraceError, NoRespondersError
from ...limits import NAME_CHARS_MAX
from ..net.leaders import is_unanswered, patiently

if TYPE_CHECKING:
    from ..net.session import Session


D = TypeVar("D", bound=Document)
P = TypeVar(
    "P", StreamListResponse, StreamNamesResponse, ConsumerListResponse, ConsumerNamesResponse
)
T = TypeVar("T")

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
            RequestTimeoutError, DisconnectedError: no answer came.
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
        return read_answer(subject, answer[5], kind)

    async def pages(
        self,
        kind: type[P],
        tokens: tuple[str, ...],
        items: Callable[[P], tuple[T, ...]],
        subject: str = "",
    ) -> AsyncIterator[T]:
        """Every item of a listing that comes in pages."""
        offset = 0
        while True:
            request = StreamNamesRequest(offset=offset, subject=subject)  # all listings read that
            page = await self.call(kind, tokens, request, repeatable=True)
            found = items(page)
            for item in found:
                yield item
            offset += len(found)
            if not found or offset >= page.total:
                return


def check_name(what: str, name: str) -> str:
    """Return ``name`` if it can be part of an API subject. Raises ConfigurationError otherwise."""
    if len(name) > NAME_CHARS_MAX:
        raise ConfigurationError(
            f"{what} name {name[:32]!r}… has {len(name)} characters; accepted are {NAME_CHARS_MAX}"
        )
    bad = next((c for c in name if c in _NAME_FORBIDDEN or not c.isprintable()), None)
    if not name or bad is not None:
        why = "is empty" if not name else f"has {bad!r}"
        raise ConfigurationError(
            f"{what} name {name!r} {why}; accepted is text without spaces, '.', '*', '>', '/', '\\'"
        )
    return name


_HOME: Final = str(Path(__file__).parents[2])
_LIBRARY: Final = str(Path(asyncio.__file__).parent)


def place_of_call() -> str:
    """File and line of whoever called into this package, or of nobody: ""."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HOME):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or frame.f_code.co_filename.startswith(_LIBRARY):
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_of_left(what: object, place: str, instead: str) -> None:
    """Warn that ``what``, made at ``place``, was let go of before its end. Called by its ``__del__``; the
    line warned of is the one that let go, unless it was found as garbage."""
    made = f", made in {place}" if place else ""
    warnings.warn(
        f"{what!r} was left open{made}; {instead}", ResourceWarning, stacklevel=3, source=what
    )
