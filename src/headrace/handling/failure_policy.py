"""What to do when a handler fails: stop, try again, or put the message elsewhere. Pure.

Where order matters (groups, ``order_by``) none of them sends a message back while it is ours. A message sent
back would be overtaken by later ones of its key. Instead its key waits. Elsewhere it is sent back with the
pause as its delay, and may be handled by another worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import ConfigurationError

BACKOFF_S: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Stop:
    """End the membership or the consume with HandlerFailedError. The message is not acknowledged."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Call the handler again, and let the message's key wait.

    Attributes:
        backoff: seconds to wait before each further call; the last one is used for all that follow.
        attempts: how often it is called at most; then as ``Stop``. None: until it succeeds.
        jitter: the share of each pause that is left to chance, 0 to 1: 0.25 is 75 to 100 % of it.
        never: errors after which it is not called again, as classes.
    """

    backoff: Sequence[float] = BACKOFF_S
    attempts: int | None = None
    jitter: float = 0.0
    never: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        _check_backoff(self.backoff)
        _check_more(self.jitter, self.never)
        if self.attempts is not None and self.attempts < 1:
            raise ConfigurationError(f"attempts is {self.attempts}; accepted: 1 or more, or None")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Publish the message to ``subject`` once the handler has failed ``after`` times, and acknowledge it.

    Attributes:
        subject: of a stream. The headers tell where the message comes from and why.
        after: how often the handler is called.
        backoff: seconds to wait before each further call; the last one is used for all that follow.
        jitter: the share of each pause that is left to chance, 0 to 1: 0.25 is 75 to 100 % of it.
        never: errors after which it is not called again, as classes: the message is published at once.
    """

    subject: str
    after: int = 5
    backoff: Sequence[float] = BACKOFF_S
    jitter: float = 0.0
    never: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        _check_backoff(self.backoff)
        _check_more(self.jitter, self.never)
        if self.after < 1:
            raise ConfigurationError(f"after is {self.after}; accepted: 1 or more")
        if not self.subject:
            raise ConfigurationError("subject is empty; accepted is one that a stream stores")


OnFailure = Stop | Retry | DeadLetter


def _check_backoff(backoff: Sequence[float]) -> None:
    if not backoff or any(seconds < 0 for seconds in backoff):
        raise ConfigurationError(
            f"backoff is {backoff!r}; accepted: one number of seconds or more, none below 0"
        )


def _check_more(jitter: float, never: tuple[type[Exception], ...]) -> None:
    if not 0 <= jitter <= 1:
        raise ConfigurationError(f"jitter is {jitter!r}; accepted: 0 to 1, a share of the pause")
    if not isinstance(never, tuple) or not all(
        isinstance(each, type) and issubclass(each, Exception) for each in never
    ):
        raise ConfigurationError(f"never is {never!r}; accepted: a tuple of classes of exceptions")


@dataclass(frozen=True, slots=True)
class Again:
    """Call the handler again after ``delay`` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Give:
    """Give the message up: publish it to ``subject``, or stop if that is ""."""

    subject: str


def decide(
    policy: OnFailure, failures: int, error: Exception | None = None, chance: float = 0.0
) -> Again | Give:
    """What follows when the handler has failed ``failures`` times with one message, the last time with
    ``error``. ``chance`` is a number from 0 to 1 that nobody can foresee."""
    if isinstance(policy, Stop):
        return Give("")
    limit = policy.attempts if isinstance(policy, Retry) else policy.after
    if (limit is not None and failures >= limit) or isinstance(error, policy.never):
        return Give("" if isinstance(policy, Retry) else policy.subject)
    return Again(pause(policy, failures, chance))


def pause(policy: Retry | DeadLetter, failures: int, chance: float = 0.0) -> float:
    """Seconds to wait after this number of failures."""
    seconds = policy.backoff[min(max(failures, 1), len(policy.backoff)) - 1]
    return seconds * (1 - policy.jitter * chance)
