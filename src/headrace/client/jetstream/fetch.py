"""One pull request and what it brings: the shell around a single fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...api.consumers import PullRequest
from ...api.names import REQUESTS_PENDING
from ...errors import (
    ConnectionClosedError,
    HeartbeatMissedError,
    NoRespondersError,
    ProtocolError,
    PullError,
)
from ...wire.encode import pub, unsub
from ...wire.frames import Frame
from ..net.waiting import Outcome
from .pull import Meaning, Pin, Status, encode_request, meaning_of, message_size, read_status

if TYPE_CHECKING:
    from ..net.session import Session


GRACE_S: Final = 1.0  # how much longer than the server's `expires` we wait for its last word
LATE_ANSWER_S: Final = 0.5  # and then for what is still under way
REMAINING_MIN_S: Final = 0.01
LAST_WORDS: Final = (404, 408)  # statuses after which a server that lives has forgotten the pull


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """What to pull: the request, its subject, and how much completes it.

    ``body``: the request as it is sent. ``resumes``: whether to pull again when a lost link is back, or to
    end.
    """

    subject: bytes
    request: PullRequest
    body: bytes
    max_messages: int
    max_bytes: int
    max_wait: float
    consumer: str
    pin: Pin = field(repr=False)
    resumes: bool = True


class Fetch(Outcome):
    """One fetch under way: ``await`` it to pull, and until the pull has ended, for what it brought.

    Nobody else has its inbox, so that unsubscribing cancels the pull. Messages that arrive for a fetch that
    was given up are sent back at once (NAK), not left to wait for their ack deadline.

    Attributes:
        frames: the messages that came.
        status: what the server ended the pull with; None where it was full.
    """

    status: Status | None = None
    _bytes = 0
    _retried = False
    _pulls = 0
    _unsubscribed = False
    _given_up = False
    _timer: asyncio.TimerHandle | None = None
    _beat_timer: asyncio.TimerHandle | None = None

    def __init__(self, session: Session, plan: FetchPlan) -> None:
        super().__init__(session.loop, at_once=session.may_run_readers)
        self._session = session
        self._plan = plan
        self.frames: list[Frame] = []
        self._began = self._last_heard = session.loop.time()

    def __await__(self) -> Generator[Any, None, list[Frame]]:
        """The messages.

        Raises, when none came: PullError (the server refused), NoRespondersError (no such
        consumer), HeartbeatMissedError, ConnectionClosedError.
        """
        session, plan = self._session, self._plan
        session.raise_if_unusable()
        self._route, subscribing = session.inboxes.borrow(self._receive)
        pull = subscribing + self._pull(plan.body)
        if session.observers or session.link is None:
            session.send_control(pull)
        else:
            session.outbox.put_now(pull)  # alone it gains by that; many are better together
        session.observers[self] = None
        until = session.limits.begin(self, plan.max_wait + GRACE_S)
        if beat := plan.request.idle_heartbeat:
            self._beat_timer = session.loop.call_later(2 * beat, self._check_beat)
        try:
            if not self.is_over:
                self._asyncio_future_blocking = True
                yield self
        except asyncio.CancelledError:
            self._give_up()
            raise
        finally:
            session.observers.pop(self, None)
            until.pop(self, None)
            if self._timer is not None:
                self._timer.cancel()
            if self._beat_timer is not None:
                self._beat_timer.cancel()
        if self._given_up:
            pass
        elif self._is_known_to_be_over:
            session.inboxes.give_back(self._route)
        else:
            session.close_route(self._route)
        if self.error is not None and not self.frames:
            try:
                raise self.error
            finally:
                del self  # or the error would hold itself, by this frame
        return self.frames

    @property
    def _is_known_to_be_over(self) -> bool:
        """Whether the server, too, knows that this was all, beyond doubt."""
        if self._pulls != 1 or self._unsubscribed:
            return False
        if self.status is not None:
            return self.status.code in LAST_WORDS
        return not self._plan.max_bytes and len(self.frames) == self._plan.max_messages

    @property
    def _is_eager(self) -> bool:
        """Whether it waits, but for the first messages only."""
        return self._plan.request.no_wait and self._plan.request.expires > 0

    def _pull(self, body: bytes, request: PullRequest | None = None) -> bytes:
        """What pulls by ``body``, which is ``request``, or that of the plan."""
        self._pulls += 1
        plan = self._plan
        if plan.pin.id:
            request = msgspec.structs.replace(request or plan.request, id=plan.pin.use())
            body = encode_request(request)
        self._session.counts.pulls += 1
        return pub(plan.subject, self._route.subject, b"", body)

    # Messages

    def _receive(self, frames: list[Frame]) -> None:
        self._last_heard = self._session.loop.time()
        messages = [frame for frame in frames if frame[3]]
        if messages:
            self.frames += messages
            if self._plan.request.group:
                self._plan.pin.learn(messages[-1][4])
            if self._is_full(messages):
                if not self.is_over:
                    self.is_over = True
                    self.wake_now()
                return
        if len(messages) != len(frames):
            for frame in frames:
                if not frame[3]:
                    self._handle_status(frame[4])

    def _is_full(self, messages: list[Frame]) -> bool:
        plan = self._plan
        if len(self.frames) >= plan.max_messages:
            return True
        if plan.max_bytes:
            self._bytes += sum(map(message_size, messages))
            return self._bytes >= plan.max_bytes  # exactly full ends without a status
        return False

    def _handle_status(self, headers: bytes) -> None:
        try:
            status = read_status(headers)
        except ProtocolError as error:
            self._finish(error=error)
            return
        meaning = meaning_of(status)
        if meaning is Meaning.HEARTBEAT:
            return
        if meaning is Meaning.UNPINNED and not self._retried and not self.frames:
            self._retried = True
            self._plan.pin.lost()
            self._pull_again()
        elif meaning is Meaning.UNPINNED:
            self._plan.pin.lost()
            self._finish(status)
        elif status.key == REQUESTS_PENDING and self._is_eager and not self.frames:
            self._pull_again(no_wait=False)  # behind others; refused at once it would be no waiting
        elif meaning is Meaning.ENDED:
            self._finish(status)
        elif status.code == 503:
            self._finish(
                status,
                NoRespondersError(
                    f"no consumer {self._plan.consumer}: it does not exist (any more), "
                    "or its stream is not available"
                ),
            )
        else:
            self._finish(status, PullError(status.code, status.description))

    def _finish(self, status: Status | None = None, error: Exception | None = None) -> None:
        if not self.is_over:
            self.status = status
            self.end(error)

    # Silence

    def _check_beat(self) -> None:
        beat = self._plan.request.idle_heartbeat
        session = self._session
        now = session.loop.time()
        if session.link is None:
            self._last_heard = now  # nothing can be heard until it is back
        silent = now - self._last_heard
        if silent >= 2 * beat:
            session.doubt.begin()
            self._finish(
                error=HeartbeatMissedError(
                    f"no message and no heartbeat from consumer {self._plan.consumer} for "
                    f"{silent:.1f} s; the pull asked for one every {beat} s"
                )
            )
            return
        self._beat_timer = session.loop.call_later(2 * beat - silent, self._check_beat)

    def late(self, seconds: float) -> None:
        """The server said nothing at the end of the pull, as with a stalled no_wait: take what is on
        its way, then end."""
        session = self._session
        self._unsubscribed = True
        session.send_control(unsub(self._route.sid))
        self._timer = session.loop.call_later(LATE_ANSWER_S, self._finish)
        session.keepalive.call_when_read(self._finish)

    def _give_up(self) -> None:
        """Nobody wants the messages: send back those that came and those that will."""
        if not self._given_up:
            self._given_up = True
            self._session.refuse_rest(self._route, self.frames)
            self.frames = []

    def give_up(self, reason: Exception) -> None:
        """The connection is about to be closed, after which nothing could be acknowledged."""
        if not self.is_over:
            self._give_up()
            self._finish(error=reason)

    # The connection

    def connection_lost(self) -> None:
        """The server has forgotten the pull; it is made again when the connection is back."""

    def connection_restored(self) -> None:
        self._last_heard = self._session.loop.time()
        if (self._is_eager and self.frames) or not self._plan.resumes:
            self._finish()
        else:
            self._pull_again()

    def connection_closed(self, reason: Exception) -> None:
        self._finish(error=ConnectionClosedError(str(reason)))

    def _pull_again(self, *, no_wait: bool | None = None) -> None:
        """Ask for the rest, in the time that is left."""
        plan = self._plan
        remaining = self._began + plan.max_wait - self._session.loop.time()
        if remaining < REMAINING_MIN_S:
            self._finish()
            return
        request = plan.request
        heartbeat = request.idle_heartbeat
        again = msgspec.structs.replace(
            request,
            batch=plan.max_messages - len(self.frames),
            no_wait=request.no_wait if no_wait is None else no_wait,
            max_bytes=plan.max_bytes - self._bytes if plan.max_bytes else 0,
            expires=remaining if request.expires else 0.0,
            idle_heartbeat=heartbeat if 2 * heartbeat <= remaining else 0.0,
        )
        self._session.send_control(self._pull(encode_request(again), again))
