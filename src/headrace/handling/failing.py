"""What follows when a handler has failed: it is called again, its message is put elsewhere, or all ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ..errors import HeadraceError
from ..retries import pause_s
from .callbacks import as_exception, cancellations, is_ending
from .dead_letter_headers import (
    ATTEMPTS,
    SEQUENCE,
    STREAM,
    SUBJECT,
    id_of_message,
    letter_headers,
)
from .failure_policy import Again, OnFailure, decide

if TYPE_CHECKING:
    from ..api.acks import AckTokens
    from ..wire.headers import Headers

REFUSED_FIRST_S: Final = (
    0.5  # until a dead letter is tried again that could not be stored; doubling …
)
REFUSED_MAX_S: Final = 10.0  # … up to here


class Delivered(Protocol):
    """A message that a handler had."""

    @property
    def headers(self) -> Headers: ...
    @property
    def is_answered(self) -> bool: ...
    @property
    def metadata(self) -> AckTokens: ...
    @property
    def subject(self) -> str: ...
    def ack(self) -> object: ...


M = TypeVar("M", bound=Delivered)


class Failing(ABC, Generic[M]):
    """Keeps a policy.

    Args:
        policy: what the user wants.
        random: a number from 0 to 1.

    Attributes:
        retried: how often a handler was called again.
        dead_letters: how many were stored.
    """

    def __init__(self, policy: OnFailure, random: Callable[[], float]) -> None:
        self._policy = policy
        self._random = random
        self._refused = 0  # dead letters in a row that could not be stored
        self.retried = 0
        self.dead_letters = 0

    async def follow(
        self, message: M, error: Exception, again: Callable[[], Awaitable[object]], failures: int
    ) -> None:
        """The handler raised ``error``, and has failed so often. Returns when the message is answered, or is
        left to be delivered again."""
        while True:
            verdict = decide(self._policy, failures, error, self._random())
            if not self._takes(message, error, verdict):
                return
            if not isinstance(verdict, Again):
                if verdict.subject:
                    await self._put_away(message, verdict.subject, error, failures)
                else:
                    self._end(message, error, failures)
                return
            self.retried += 1
            if not await self._waits(message, verdict.delay):
                return
            failures += 1
            before = cancellations()
            try:
                await again()
            except BaseException as raised:
                if is_ending(raised, cancelled_before=before):
                    raise
                error = as_exception(raised)
            else:
                return

    async def _put_away(self, message: M, subject: str, error: Exception, failures: int) -> None:
        """Store it at ``subject``, and then acknowledge it; try on while it is ours, until that succeeds."""
        about = message.metadata
        name, who, part = self._by(message)
        said = [(STREAM, about.stream), (name, who), (SUBJECT, message.subject)]
        said += [(SEQUENCE, str(about.stream_seq)), (ATTEMPTS, str(failures))]
        headers = letter_headers(message, error, said)
        msg_id = id_of_message(about, part)
        while True:
            self._keep(message)
            try:
                await self._store(message, subject, headers, msg_id)
            except HeadraceError as refused:
                self._refused += 1
                self._report(message, refused)
            else:
                self._refused = 0
                self.dead_letters += 1
                message.ack()
                return
            if not await self._waits(
                message, pause_s(self._refused, REFUSED_FIRST_S, REFUSED_MAX_S)
            ):
                return

    @abstractmethod
    def _takes(self, message: M, error: Exception, verdict: object) -> bool:
        """Tell of the failure; whether anything follows: the message is ours, and not answered."""

    @abstractmethod
    async def _waits(self, message: M, seconds: float) -> bool:
        """Wait, or have it delivered again after that; whether to go on with it here."""

    @abstractmethod
    def _end(self, message: M, error: Exception, failures: int) -> None:
        """End the work, by HandlerFailedError."""

    @abstractmethod
    def _by(self, message: M) -> tuple[str, str, str]:
        """Who handled it: a header's name, what it says, and what a message id says of it."""

    @abstractmethod
    async def _store(
        self, message: M, subject: str, headers: dict[str, list[str]], msg_id: str
    ) -> None:
        """Publish a dead letter. Raises HeadraceError."""

    @abstractmethod
    def _report(self, message: M, error: Exception) -> None:
        """A dead letter was not stored."""

    def _keep(self, message: M) -> None:
        """The answer may take a while: see to it that the message stays ours."""
