"""Waiting for a leader: who has a subject, what an election looks like from outside, and patience.

In a cluster each stream has a leader, and so has JetStream itself. While one is being elected a publish is
answered "no responders", as it is when there is no such stream, and an API call not at all. So we ask who has
the subject: where nobody has, the call fails at once; else it is made again until ``delivery_timeout``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ...api.base import DocumentError, encode
from ...api.envelope import decode_response
from ...api.errors import Errors
from ...api.streams import StreamNamesRequest, StreamNamesResponse
from ...errors import (
    BufferFullError,
    ConfigurationError,
    DisconnectedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    ServerError,
    TimeoutError_,
)
from ..events import LeaderWaitOver, WaitingForLeader

if TYPE_CHECKING:
    from ..jetstream.calls import Api
    from .session import Session

__all__ = [
    "Answer",
    "LeaderWaits",
    "PublishAgain",
    "Who",
    "delivery_seconds",
    "is_behind",
    "is_leaderless",
    "is_unanswered",
    "no_leader",
    "nobody_has",
    "patiently",
    "pauses",
    "who_has",
]

T = TypeVar("T")

PAUSE_FIRST_S: Final = 0.25
PAUSE_MAX_S: Final = 1.0
# Refusals, in 15 s: who leads without hearing from the others gives up after 10. A message may also be
# gone, and the sequence be right.
BEHIND_MAX: Final = 16
ASK_S: Final = 1.0  # in a cluster, no answer for so long means that JetStream has no leader
_NOT_NOW: Final = frozenset(
    {
        10008,  # JetStream is not available now
        10009,  # not the leader (now)
        10158,  # a message with this id is being stored: the one sent before
    }
)
_NOBODY: Final = 503
_LAST: Final = re.compile(r"wrong last sequence: (\d{1,19})")


def is_leaderless(error: Exception) -> bool:
    """Whether a server refused, and did nothing, because somebody else leads, or nobody does now.

    What it could not propose to the others is answered with 503 and no number.
    """
    if not isinstance(error, JetStreamApiError):
        return False
    return error.err_code in _NOT_NOW or (error.code == _NOBODY and error.err_code == 0)


def is_unanswered(session: Session, error: Exception) -> bool:
    """Whether a call has no answer as one of a cluster may have none while it elects. It may have been
    executed or not."""
    return bool(session.info.cluster) and isinstance(error, TimeoutError_ | DisconnectedError)


def is_behind(session: Session, error: Exception, expected: int) -> bool:
    """Whether a server of a cluster refused an expected sequence because it is behind: sequences only grow,
    so it names a lower one. It led before, and does not know yet that it does no longer."""
    if not session.info.cluster or not isinstance(error, JetStreamApiError):
        return False
    found = _LAST.fullmatch(error.description)
    wrong = error.err_code == Errors.STREAM_WRONG_LAST_SEQUENCE.err_code
    return wrong and found is not None and 0 < int(found[1]) < expected


def is_undecided(session: Session, error: Exception) -> bool:
    """Whether a server of a cluster refused an expected sequence because another message of the subject is
    on its way to the stream: it may be the one that was sent before, and it may come to nothing."""
    constant = Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code
    return (
        bool(session.info.cluster)
        and isinstance(error, JetStreamApiError)
        and error.err_code == constant
    )


def nobody_has(subject: str) -> NoRespondersError:
    """What is raised when no stream has a subject."""
    return NoRespondersError(f"no stream has the subject {subject!r}")


def no_leader(of: str, limit: float) -> NoRespondersError:
    """What is raised for what was certainly not stored, when the time is over."""
    return NoRespondersError(f"{of} had no leader within {limit} s; nothing was stored")


def pauses() -> Iterator[float]:
    """Seconds between attempts, without end."""
    pause = PAUSE_FIRST_S
    while True:
        yield pause
        pause = min(2 * pause, PAUSE_MAX_S)


# Who has a subject


class Who(Enum):
    """What is known of the stream of a subject."""

    STREAM = auto()
    NOBODY = auto()
    NOT_NOW = auto()
    """Nobody can say: JetStream itself has no leader, or the connection was lost."""
    UNTOLD = auto()
    """We may not ask, or nobody understands the question."""


class Answer(NamedTuple):
    """``of`` is what has no leader, in words."""

    who: Who
    of: str = "JetStream"


async def who_has(api: Api, subject: str) -> Answer:
    """Ask the leader of JetStream which stream has ``subject``.

    Raises ConnectionClosedError.
    """
    body = encode(StreamNamesRequest(subject=subject))
    session = api.session
    seconds = min(api.timeout, ASK_S) if session.info.cluster else api.timeout
    try:
        frame = await session.requests.ask(api.subject("STREAM", "NAMES"), b"", body, seconds)
        names = decode_response(frame.payload, StreamNamesResponse).streams
    except NoRespondersError:
        return Answer(Who.NOBODY)  # there is no JetStream here
    except JetStreamApiError as error:
        return Answer(Who.NOT_NOW if is_leaderless(error) else Who.NOBODY)
    except (DisconnectedError, BufferFullError):
        return Answer(Who.NOT_NOW)
    except TimeoutError_:
        return Answer(Who.NOT_NOW if session.info.cluster else Who.UNTOLD)
    except (ServerError, DocumentError):
        return Answer(Who.UNTOLD)
    return Answer(Who.STREAM, f"stream {names[0]!r}") if names else Answer(Who.NOBODY)


class PublishAgain:
    """Decides, of an awaited publish that failed, whether it is to be sent again.

    Args:
        retries: how often, when it cannot be asked who has the subject; 0: never, for any reason.
        deduplicated: whether the stream drops it if it is there already.
        expected: the last sequence it expects, or 0.
    """

    def __init__(
        self, api: Api, subject: str, retries: int, *, deduplicated: bool, expected: int
    ) -> None:
        self._api = api
        self._expected = expected
        self._behind = 0
        self._subject = subject
        self._retries = retries
        self._deduplicated = deduplicated
        self._of = f"the stream of {subject!r}"

    async def awaited(self, error: HeadraceError) -> str:
        """What has no leader, in words; "" if there is no use in waiting.

        Raises NoRespondersError: no stream has the subject.
        """
        if isinstance(error, NoRespondersError):
            return await self._who(error)
        if not self._retries:
            return ""
        if self._behind < BEHIND_MAX and is_behind(self._api.session, error, self._expected):
            self._behind += 1
            return self._of
        session = self._api.session
        unanswered = self._deduplicated and is_unanswered(session, error)
        again = unanswered or is_undecided(session, error) or is_leaderless(error)
        return self._of if again else ""

    async def _who(self, error: HeadraceError) -> str:
        if self._retries <= 0:
            raise nobody_has(self._subject) from None
        who, self._of = await who_has(self._api, self._subject)
        if who is Who.UNTOLD:
            self._retries -= 1
        elif who is Who.NOBODY:
            raise nobody_has(self._subject) from None
        return self._of


# Patience


def delivery_seconds(session: Session, given: float | None, otherwise: float = 0.0) -> float:
    """A ``delivery_timeout``: the given one, or what else holds. Raises ConfigurationError."""
    if given is None:
        return otherwise or session.options.delivery_timeout
    if not isinstance(given, int | float) or not given > 0:
        raise ConfigurationError(f"delivery_timeout is {given!r}; accepted: more than 0 seconds")
    return given


class LeaderWaits:
    """Who waits for which leader, over one connection: an event when the first one begins to, and one when
    the last one goes on or gives up."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, tuple[int, float]] = {}  # how many, and since when
        self.total = 0

    @property
    def count(self) -> int:
        """How many wait at this moment: calls, and publishers."""
        return sum(count for count, _ in self._waiting.values())

    def begin(self, of: str) -> None:
        """Somebody waits for the leader of this."""
        self.total += 1
        count, since = self._waiting.get(of, (0, self._session.loop.time()))
        self._waiting[of] = (count + 1, since)
        if not count:
            self._session.hub.emit(WaitingForLeader(of))

    def end(self, of: str, found: bool) -> None:
        """One of them waits no longer."""
        count, since = self._waiting.pop(of)
        if count > 1:
            self._waiting[of] = (count - 1, since)
        else:
            waited = self._session.loop.time() - since
            self._session.hub.emit(LeaderWaitOver(of, waited, found))


async def patiently(
    session: Session,
    limit: float,
    attempt: Callable[[], Awaitable[T]],
    awaited: Callable[[HeadraceError], Awaitable[str]],
    failed: HeadraceError | None = None,
) -> T:
    """The result of ``attempt``, made again and again until ``limit`` seconds have passed.

    ``awaited`` says of an error what has no leader, in words, or "" if waiting does not help; it may raise
    another error instead. ``failed`` is the error of an attempt that was made already.
    """
    loop = session.loop
    deadline, steps = loop.time() + limit, pauses()
    of, found = "", False
    try:
        while True:
            if failed is None:
                try:
                    result = await attempt()
                except HeadraceError as error:
                    failed = error
                else:
                    found = True
                    return result
            now_of = await awaited(failed)
            pause = next(steps)
            if not now_of:
                found = isinstance(failed, JetStreamApiError)  # somebody decided
                raise failed
            if loop.time() + pause >= deadline:
                if isinstance(failed, NoRespondersError):
                    raise no_leader(now_of, limit) from None
                failed.add_note(f"{now_of} had no leader within {limit} s")
                raise failed
            if not of:
                of = now_of
                session.waits.begin(of)
            failed = None
            await asyncio.sleep(pause)
    finally:
        if of:
            session.waits.end(of, found)
