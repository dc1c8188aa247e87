"""The windowed publisher whose messages are answered one by one, for any kind of command."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import Final, Generic, TypeVar, cast

from ...api.base import DocumentError
from ...api.envelope import decode_pub_ack
from ...api.errors import is_leaderless
from ...errors import (
    ConfigurationError,
    ConnectionClosedError,
    DisconnectedUnknownError,
    HeadraceError,
    ProtocolError,
    TimeoutUnknownError,
)
from ...wire.frames import Frame
from ...wire.headers import says_nobody
from ..jetstream.calls import Api
from ..message import HeadersLike, Payload
from .publisher import NOT_OPEN, SEND_AT_ONCE_MAX, Publisher, PublisherSettings, wake_all
from .recovery import Recovery
from .stream_of_subject import nobody_has

OK_START: Final = b'{"stream"'
_DUPLICATE: Final = b'"duplicate"'

C = TypeVar("C")


class WindowPublisher(Publisher, Generic[C]):
    """A publisher that keeps the commands without an answer, each under its number.

    ``C`` is what a command is: bytes for a socket, frames for a broker in this process. What has no
    underscore is for its ``Recovery``; users know a ``Publisher``.

    Attributes:
        unacked: the command of each number without an answer, in the order sent.
    """

    def __init__(self, api: Api, settings: PublisherSettings) -> None:
        super().__init__(api, settings)
        window = settings.window
        self._reopen_at = window - window // 4  # a full window reopens when a quarter is free
        self._recovery: Recovery[C] = Recovery(self, api, settings)
        self._flowing = False  # whether what is sent leaves: there is a link, and no trouble
        self._sent_below = 0  # when it does not: all with lower numbers may have left
        self.unacked: dict[bytes, C] = {}
        self._attempts: dict[bytes, int] = {}  # only of those sent again
        self._last_ack = b""
        self._sent_at_tick = 0

    @property
    def in_flight(self) -> int:
        return len(self.unacked)

    @property
    def last_sequence(self) -> int:
        return decode_pub_ack(self._last_ack).seq if self._last_ack else 0

    # What a command is

    @abstractmethod
    def _command(
        self,
        index: int,
        subject: str,
        payload: Payload,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> C:
        """What publishes a message with its number as reply."""

    @staticmethod
    @abstractmethod
    def _size(command: C) -> int: ...

    @abstractmethod
    def _total(self, commands: list[C]) -> int:
        """The size of several."""

    @abstractmethod
    def _put(self, commands: list[C], size: int) -> None:
        """Queue commands of ``size`` bytes together, for this link only."""

    @staticmethod
    @abstractmethod
    def subject_of(command: C) -> str:
        """The subject that a command publishes to."""

    # Beginning and end

    def _open(self) -> None:
        if self._route is not None:
            raise ConfigurationError("a publisher is entered once")
        session = self._session
        self._prefix = session.new_inbox().encode() + b"."
        self._route = session.open_route(self._prefix + b"*", self._receive)
        self._enter()
        self._flowing = session.link is not None
        if not self._flowing:
            self._recovery.lost()  # or nobody would send what is held back until there is a link
        self._timer = session.loop.call_later(self._recovery.pace, self._tick)

    def _shut(self, reason: Exception) -> None:
        if self._route is None:
            return
        self._leave()
        self._session.close_route(self._route)
        self._route = None
        sent_below = self.sent if self._flowing else self._sent_below
        self._flowing = False
        self._recovery.close()
        for key in [key for key in self.unacked if int(key) < sent_below]:
            self.fail(key, reason)
        self._fail_all(ConnectionClosedError(f"{reason}; it was not sent"))
        self._add_to_counts()

    def _check_open(self) -> None:
        if self._route is None:
            raise ConnectionClosedError(NOT_OPEN)
        self._session.check_linked()

    async def _wait_for_answers(self) -> None:
        if self.in_flight:
            flusher = self._session.loop.create_future()
            self._flushers.append(flusher)
            await flusher

    # Sending

    @property
    def _is_full(self) -> bool:
        return self.in_flight >= self._window or self._unacked_bytes >= self._window_bytes

    def _send_one(self, subject: str, payload: Payload, headers: HeadersLike, msg_id: str) -> int:
        index = self.sent
        command = self._command(index, subject, payload, headers, msg_id)
        self.unacked[b"%d" % index] = command
        size = self._size(command)
        self._unacked_bytes += size
        self.sent = index + 1
        if self._flowing:
            self._put([command], size)
        return index

    async def _send_ready(self, commands: deque[object]) -> None:
        ready = cast("deque[C]", commands)  # what `_command` has made
        while ready:
            if self._is_full:
                await self._wait_for_window()
            is_open = self._route is not None
            before = self._unacked_bytes
            out: list[C] = []
            while ready and len(out) < SEND_AT_ONCE_MAX and not (is_open and self._is_full):
                command = ready.popleft()
                self.unacked[b"%d" % self.sent] = command
                self._unacked_bytes += self._size(command)
                self.sent += 1
                out.append(command)
            if not is_open:
                self._fail_all(ConnectionClosedError("the publisher was closed before it was sent"))
            elif self._flowing:
                self._put(out, self._unacked_bytes - before)

    # Answers

    def _receive(self, frames: list[Frame]) -> None:
        forget, start = self.unacked.pop, len(self._prefix)
        good = [frame for frame in frames if frame[5][:9] == OK_START]
        if len(good) < len(frames):
            for frame in frames:
                if frame[5][:9] != OK_START:
                    self._refused(frame[1][start:], frame)
        commands = [forget(frame[1][start:], None) for frame in good]
        acked = [command for command in commands if command is not None]
        if acked:
            self._last_ack = good[-1][5]
            if [True for frame in good if _DUPLICATE in frame[5]]:
                self.duplicates += sum(
                    _DUPLICATE in frame[5]
                    for frame, command in zip(good, commands, strict=True)
                    if command is not None
                )
        self.acked += len(acked)
        self._unacked_bytes -= self._total(acked)
        self._progress()

    def _refused(self, key: bytes, frame: Frame) -> None:
        """Anything but an ack: it has failed, unless nobody listens or leads just now."""
        if key not in self.unacked:
            return  # sent twice and answered twice
        subject = self.subject_of(self.unacked[key])
        if says_nobody(frame[4], frame[5]):
            if self._retries:
                self._recovery.refused(key, subject, leaderless=False)
            else:
                self.fail(key, nobody_has(subject))
            return
        error = _refusal_of(frame[5])
        if self._retries and is_leaderless(error):
            self._recovery.refused(key, subject, leaderless=True)
            return
        self.fail(key, error)

    def _progress(self) -> None:
        """Messages were answered: resume what waits for that."""
        if self._attempts:
            self._attempts = {k: n for k, n in self._attempts.items() if k in self.unacked}
        if self._recovery.stalled:
            self._recovery.look()
        self.wake()

    def wake(self) -> None:
        """Resume who waits for room, or for the last answer."""
        if self._waiters and self.in_flight <= self._reopen_at and not self._is_full:
            wake_all(self._waiters)
        if self._flushers and not self.in_flight:
            wake_all(self._flushers)

    # Failures and second attempts

    def _may_try_again(self, key: bytes) -> bool:
        attempts = self._attempts.get(key, 0) + 1
        self._attempts[key] = attempts
        return attempts <= self._retries

    def fail(self, key: bytes, error: Exception) -> None:
        """Give up one message, and say why."""
        command = self.unacked.pop(key)
        self._unacked_bytes -= self._size(command)
        self._report(int(key), self.subject_of(command), error)

    def _fail_all(self, error: Exception) -> None:
        for key in list(self.unacked):
            self.fail(key, error)
        self._progress()

    def hold(self) -> None:
        """There is trouble: hold back what is sent from here on."""
        if self._flowing:
            self._sent_below = self.sent
        self._flowing = False

    def release(self, *, anew: bool) -> None:
        """It may flow again; ``anew``: the clock of what was sent starts anew."""
        self._flowing = self._session.link is not None
        if anew:
            self._sent_at_tick = 0

    def resend(self, keys: list[bytes]) -> None:
        """Send what is still unanswered, in pieces; without a link it is sent when there is one."""
        if self._session.link is None:
            return
        unacked = self.unacked
        if keys:
            self._sent_below = max(self._sent_below, int(keys[-1]) + 1)
        for start in range(0, len(keys), SEND_AT_ONCE_MAX):
            piece = [unacked[key] for key in keys[start : start + SEND_AT_ONCE_MAX]]
            self._put(piece, self._total(piece))

    def _tick(self) -> None:
        """What was sent before the last tick is overdue."""
        self._timer = self._session.loop.call_later(self._recovery.pace, self._tick)
        before, self._sent_at_tick = self._sent_at_tick, self.sent
        if self._session.link is None:
            return  # the clock starts anew when the connection is back
        if self._repeats and self._recovery.stalled:
            return  # the recovery takes care of all of them
        overdue = self._recovery.overdue(before)
        if overdue:
            self._session.doubt.begin()
        if self._repeats:
            if overdue:
                self._recovery.doubt(before)
            return
        again = [key for key in overdue if self._may_try_again(key)]
        for key in set(overdue) - set(again):
            self.fail(
                key,
                TimeoutUnknownError(
                    f"no ack within {self._ack_timeout} s, sent {self._attempts[key]} time(s): it may be "
                    "stored or not"
                ),
            )
        self.resend(again)
        self._progress()

    # The connection

    def connection_lost(self) -> None:
        """Acks under way are lost: these messages are sent again, or reported."""
        lost = DisconnectedUnknownError(
            "the connection was lost before the ack came: it may be stored or not"
        )
        if not self._repeats:
            for key in self._recovery.overdue(self.sent):
                if not self._may_try_again(key):
                    self.fail(key, lost)
        self._recovery.lost()
        self._refuse_if_away()
        self._progress()

    def connection_restored(self) -> None:
        """After a reconnect: see to what was sent on the lost connection and is unanswered."""
        self._max_payload = self._session.info.max_payload
        self._recovery.restored()


def _refusal_of(payload: bytes) -> Exception:
    """What an answer to a publish says that is no acknowledgement."""
    error = ProtocolError("the answer to a publish is no stream's: somebody answers there")
    try:
        decode_pub_ack(payload)
    except HeadraceError as refusal:
        return refusal
    except DocumentError as unread:
        error.__cause__ = unread
    return error
