"""A windowed publisher whose messages go in fast batches: one acknowledgement for hundreds of messages.

A batch begins with one message; its answer says how many may be under way, and more follow. It ends when
nothing was acknowledged for a moment, or somebody flushes: the stream's last answer says how many messages
are stored. The same answer comes when a message was refused or lost, and what follows that message was
certainly not stored: the publisher goes on with it in the next batch. After a lost connection the stream
is asked how far the batch came. So only an answer that is lost together with the stream's memory of the
batch, by a restart or ten seconds of silence, leaves it open what was stored. In a cluster these messages are
then published one after the other (``publish_command``), if their ids make sure that none is stored twice.

The next leader of a stream keeps its batches, but not that one was to end: it answers how far the batch came,
and waits for more. Then the end is sent again.

nats-server leaves out of a fast batch what has an id that the stream knows, and counts it as stored. But it
knows an id as soon as its leader has proposed the message to the others. A leader that is cut off from them
believes that it leads, and would count as stored what nobody else will ever have. An ordinary publish of
such a message is refused. So each is published by itself, until the stream has stored one anew: then all
that its leader had proposed before is stored, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import (
    ConfigurationError,
    ConnectionClosedError,
    DisconnectedError,
    DisconnectedUnknownError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    TimeoutUnknownError,
)
from ...wire.encode import pub
from ...wire.frames import Frame
from ..jetstream.calls import Api
from ..message import HeadersLike, Payload
from ..net.leaders import no_leader, patiently, pauses
from ..net.session import LeaderWait
from .awaited import RETRIES, PublishAgain, ask_stream
from .fast_answers import (
    APPEND,
    END,
    FLOW_MAX,
    PING,
    START,
    FastAnswer,
    Kind,
    in_words,
    is_unavailable,
    read_answer,
    with_reply,
)
from .publisher import (
    NOT_OPEN,
    SEND_AT_ONCE_MAX,
    Publication,
    Publisher,
    PublisherSettings,
    wake_all,
)
from .stream_of_subject import Who, is_passing, may_pass, nobody_has, who_has

if TYPE_CHECKING:
    from ...api.messages import PubAck


ANSWERS_OUT: Final = 3  # that the stream may owe: it works on one part while the next is under way
ANSWERS_OUT_MAX: Final = 32  # … while answers take long, as those of a slow disk do
SLOW_ANSWER_S: Final = 0.002
LINGER_S: Final = 0.1  # a batch ends without progress for this long, at most twice that
RETRY_PAUSE_S: Final = 0.25
_NO_REPLY: Final = b"?"  # stands where the reply will be, in a command that has no place yet


class State(Enum):
    IDLE = auto()  # no batch
    STARTING = auto()  # the first message is sent, its answer has not come
    OPEN = auto()
    ENDING = auto()  # nothing more is sent; an answer will say what was stored
    PAUSED = auto()  # no batch, and a moment to wait
    SETTLING = auto()  # no batch; messages that may be stored are published one after the other


class FastPublisher(Publisher):
    """Sends without waiting for each ack, in fast batches. Made by ``js.publisher(fast=True)``.

    Attributes are those of ``Publisher``; ``duplicates`` stays 0, since the stream does not tell.
    """

    def __init__(self, api: Api, settings: PublisherSettings) -> None:
        super().__init__(api, settings)
        self._placed: deque[bytes] = deque()  # sent in this batch and not acked, in order
        self._waiting: deque[bytes] = deque()  # behind them, without a place
        self._batch_subject = b""  # of the message the batch began with
        self._first = 0  # the number of the message in front
        self._state = State.IDLE
        self._limit = 1  # how many placed ones there may be
        self._place = self._acked_place = 0  # in this batch: of what was sent last, and acked last
        self._refusals: dict[int, HeadraceError] = {}  # by place
        self._resuming = False  # the link is new, and how far the batch came is asked
        self._tries = 0  # how often the message in front was sent for nothing
        self._last_sequence = 0
        self._entered = self._is_open = False
        self._broken: ConfigurationError | None = None
        self._pinged = False
        self._unheard = 0  # how often nobody heard what was asked about this batch
        self._heard = 0.0  # when the last answer came, or something was begun that will have one
        self._moved = 0.0  # when a message was acked last, or the batch began or was to end
        self._round_trip = 0.0  # seconds; what answers took lately
        self._answers_out = ANSWERS_OUT
        self._since: float | None = None  # when the trouble with the message in front began
        self._pauses = pauses()
        self._wait = LeaderWait(api.session.waits)
        self._finding: asyncio.Task[None] | None = None  # while PAUSED or SETTLING
        self._maybe_stored = 0  # how many in front were sent, and may be stored or not
        self._doubtful = 0  # how many messages in front may be stored already
        self._probe, self._probed_at = 0, 0.0  # a place of which the answer is timed; 0 for none
        flow = min(FLOW_MAX, max(1, settings.window // ANSWERS_OUT))
        self._form = b".%d.fail." % flow

    @property
    def in_flight(self) -> int:
        return len(self._placed) + len(self._waiting)

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the last message of the batch that ended last, or 0."""
        return self._last_sequence

    @property
    def _end_max(self) -> float:
        """Seconds without progress in which a batch has to end, whatever is said of it meanwhile. The stream
        stores what it has yet, so it is not soon sent again where that might store it twice."""
        return self._ack_timeout if self._repeats else self._delivery_timeout

    @property
    def _is_full(self) -> bool:
        if self._unacked_bytes >= self._window_bytes and self.in_flight:
            return True
        if self._state is State.OPEN and self._session.link is not None:
            return bool(self._waiting) or len(self._placed) >= self._limit
        if self._session.link is None:
            return self.in_flight >= self._window
        return self._state is not State.IDLE

    # Beginning and end

    def _open(self) -> None:
        if self._entered:
            raise ConfigurationError("a publisher is entered once")
        self._entered = self._is_open = True
        self._enter()

    def _shut(self, reason: Exception) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._state in (State.STARTING, State.OPEN) and self._session.link is not None:
            self._steer(END)  # so that the stream need not keep the batch
        sent = max(len(self._placed), self._maybe_stored)
        self._leave_batch()
        if self._finding is not None:
            self._finding.cancel()
        self._leave()
        self._fail_front(sent, reason)
        self._fail_front(len(self._waiting), ConnectionClosedError(f"{reason}; it was not sent"))
        self._progress()
        self._add_to_counts()

    def _check_open(self) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._is_open:
            raise ConnectionClosedError(NOT_OPEN)
        self._session.check_linked()

    async def _wait_for_answers(self) -> None:
        if self._waiting or self._placed or self._state is State.OPEN:
            flusher = self._session.loop.create_future()
            self._flushers.append(flusher)
            self._pump()
            await flusher

    # Sending

    def _send_one(self, subject: str, payload: Payload, headers: HeadersLike, msg_id: str) -> int:
        head = self._heads.get(subject)
        if (
            head is None
            or headers
            or msg_id
            or self._adds_headers
            or self._state is not State.OPEN
            or type(payload) is not bytes
            or len(payload) > self._max_payload
            or self._session.link is None
        ):
            self._queue([self._command(self.sent, subject, payload, headers, msg_id)])
            return self.sent - 1
        # The usual message of a batch that goes on.
        self._place = place = self._place + 1
        data = b"%b%b%d.1.$FI %d\r\n%b\r\n" % (head, self._prefix, place, len(payload), payload)
        self._placed.append(data)
        self._session.counts.published += 1
        self._session.outbox.put_once(data)
        self._unacked_bytes += len(data)
        self.sent = number = self.sent + 1
        if not self._probe or self._unacked_bytes >= self._window_bytes:
            self._after_sending()
        return number - 1

    def _after_sending(self) -> None:
        if not self._probe:
            self._probe, self._probed_at = self._place, self._session.loop.time()
        if self._unacked_bytes >= self._window_bytes:
            self._end()  # no answer may be due for what is under way

    def _send_some(self, iterator: Iterator[Publication]) -> bool:
        if self._state is not State.OPEN or self._session.link is None:
            for message in iterator:
                self._queue([self._command(self.sent, *message)])
                return False
            return True
        command, size_max, window_bytes = self._command, self._max_payload, self._window_bytes
        heads = {} if self._adds_headers else self._heads
        size, place = self._unacked_bytes, self._place
        last = place + min(self._limit - len(self._placed), SEND_AT_ONCE_MAX)
        prefix = self._prefix
        out: list[bytes] = []
        try:
            for message in iterator:
                payload = message[1]
                # As `_send_one` makes it. A call per message costs the client 13 % more processor time.
                if (
                    len(message) == 2
                    and type(payload) is bytes
                    and (length := len(payload)) <= size_max
                    and (head := heads.get(message[0]))
                ):
                    place += 1
                    data = b"%b%b%d.1.$FI %d\r\n%b\r\n" % (head, prefix, place, length, payload)
                else:
                    given = command(self.sent + len(out), *message)
                    place += 1
                    data = with_reply(given, prefix, place, APPEND)
                out.append(data)
                size += len(data)
                if place == last or size >= window_bytes:
                    return False
            return True
        finally:
            self._placed += out
            self._place, self._unacked_bytes = place, size
            self.sent += len(out)
            if out:
                self._put(out)
                self._after_sending()

    async def _send_ready(self, commands: deque[object]) -> None:
        ready = cast("deque[bytes]", commands)  # what `_command` has made
        while ready:
            if self._is_open and self._broken is None and self._is_full:
                await self._wait_for_window()
            if not self._is_open or self._broken is not None:
                self._refuse_ready(ready)
                return
            room = self._limit - len(self._placed) if self._state is State.OPEN else 1
            count = min(max(room, 1), len(ready), SEND_AT_ONCE_MAX)
            self._queue([ready.popleft() for _ in range(count)])

    def _refuse_ready(self, commands: deque[bytes]) -> None:
        reason = self._broken or ConnectionClosedError(
            "the publisher was closed before it was sent"
        )
        while commands:
            self._waiting.append(commands.popleft())
            self._unacked_bytes += len(self._waiting[-1])
            self.sent += 1
        self._fail_front(len(self._waiting), reason)
        self._progress()

    def _queue(self, commands: list[bytes]) -> None:
        """Send commands without a place, or keep them until they may be sent."""
        self._waiting += commands
        self._unacked_bytes += sum(map(len, commands))
        self.sent += len(commands)
        self._pump()

    def _command(
        self,
        index: int,
        subject: str,
        payload: Payload,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> bytes:
        """What publishes a message, but for its reply."""
        head, block, payload = self._parts(index, subject, payload, headers, msg_id)
        if block:
            sizes = (len(block), len(block) + len(payload))
            return b"H%b%b %d %d\r\n%b%b\r\n" % (head, _NO_REPLY, *sizes, block, payload)
        return b"%b%b %d\r\n%b\r\n" % (head, _NO_REPLY, len(payload), payload)

    def _opening(self, subject: bytes) -> bytes:
        return b"PUB %b " % subject

    # Commands

    def _put(self, commands: list[bytes]) -> None:
        """Queue commands together, for this link only."""
        self._session.counts.published += len(commands)
        self._session.outbox.put_once(b"".join(commands))

    @staticmethod
    def _subject_of(command: bytes) -> str:
        return command.split(b" ", 2)[1].decode()

    # The batch

    def _pump(self) -> None:
        """Send what waits and may be sent now."""
        if self._session.link is None or not self._is_open:
            return
        if self._state is State.IDLE and self._waiting:
            if self._doubtful:
                self._begin(State.SETTLING, self._settle())
            else:
                self._start()
        elif self._state is State.OPEN:
            waiting = self._waiting
            while waiting and (room := self._limit - len(self._placed)) > 0:
                count = min(room, len(waiting), SEND_AT_ONCE_MAX)
                self._send_placed([waiting.popleft() for _ in range(count)], APPEND)
            if not waiting and (self._flushers or self._unacked_bytes >= self._window_bytes):
                self._end()  # in the latter case no answer may be due for what is under way

    def _start(self) -> None:
        """Begin a batch with the message in front, and wait for what the stream says to it."""
        session = self._session
        inbox = session.new_inbox().encode()
        self._prefix = inbox + self._form
        self._route = session.open_route(inbox + b".>", self._receive)
        self._place = self._acked_place = 0
        self._limit = 1
        self._refusals.clear()
        self._resuming = self._pinged = False
        self._unheard = self._probe = 0
        self._state = State.STARTING
        self._heard = self._moved = session.loop.time()
        self._batch_subject = self._waiting[0].split(b" ", 2)[1]
        self._send_placed([self._waiting.popleft()], START)
        if self._timer is None:
            self._beat()

    def _send_placed(self, commands: list[bytes], operation: int) -> None:
        """Give commands the next places, and send them."""
        prefix, place = self._prefix, self._place
        self._unacked_bytes -= sum(map(len, commands))
        out = [
            with_reply(command, prefix, number, operation)
            for number, command in enumerate(commands, place + 1)
        ]
        self._unacked_bytes += sum(map(len, out))
        self._place += len(out)
        self._placed += out
        self._put(out)

    def _steer(self, operation: int) -> None:
        """Send what is no message of the batch, under the subject of one that is."""
        place = self._place + 1 if operation == END else self._place
        reply = b"%b%d.%d.$FI" % (self._prefix, place, operation)
        self._session.outbox.put_once(pub(self._batch_subject, reply, b"", b""))

    def _end(self) -> None:
        self._state = State.ENDING
        self._heard = self._moved = self._session.loop.time()
        self._steer(END)

    def _leave_batch(self) -> None:
        """The batch is over. What is not known to be stored waits for the next one."""
        if self._route is not None:
            self._session.close_route(self._route)
            self._route = None
        self._waiting.extendleft(reversed(self._placed))
        self._placed.clear()
        self._resuming = False
        self._state = State.IDLE

    # Answers

    def _receive(self, frames: list[Frame]) -> None:
        for frame in frames:
            answer = read_answer(self._prefix, frame)
            if answer is not None and self._route is not None:
                self._hear(answer)
        self._pump()  # when all is heard: a refusal may follow the answer to the message refused
        self._progress()

    def _hear(self, answer: FastAnswer) -> None:
        now = self._session.loop.time()
        if self._state is not State.OPEN:  # it answers what was sent last
            self._round_trip = max(now - self._heard, self._round_trip / 2)
        elif answer.kind is Kind.FLOW and 0 < self._probe <= answer.seq:
            self._probe, took = 0, now - self._probed_at
            self._round_trip = max(took, self._round_trip / 2)
            if took >= SLOW_ANSWER_S and self._waiters:  # more under way makes up for it
                self._answers_out = min(2 * self._answers_out, ANSWERS_OUT_MAX)
        self._heard, self._pinged = now, False
        self._answered(answer)

    def _answered(self, answer: FastAnswer) -> None:
        kind = answer.kind
        if kind is Kind.FLOW:
            self._acked_up_to(answer.seq)
            self._limit = max(1, min(self._window, answer.messages * self._answers_out))
            if self._state is State.STARTING or self._resuming:
                self._state, self._resuming = State.OPEN, False
            elif self._state is State.ENDING and answer.operation == PING:
                self._steer(END)  # the next leader does not know; who knows heeds one of them
        elif kind is Kind.GAP:
            self._stop()
        elif kind is Kind.REFUSED and answer.error is not None:
            self._refusals[answer.seq] = answer.error
            self._stop()
        elif kind is Kind.TOTAL:
            self._last_sequence = answer.seq or self._last_sequence
            self._over(answer.stored)
        elif kind is Kind.STORED:
            self._acked_up_to(1)
            self._last_sequence = answer.seq
            self._give_up("the server does not know them: nats-server has them from 2.14 on")
        elif answer.error is not None:
            self._refused_at(answer.place, answer.operation, answer.error)

    def _acked_up_to(self, place: int) -> None:
        """All up to this place is stored."""
        count = min(place - self._acked_place, len(self._placed))
        if count <= 0:
            return
        self._acked_place += count
        self._moved = self._heard
        self._acked_front(self._placed, count)

    def _acked_front(self, messages: deque[bytes], count: int) -> None:
        oldest = messages.popleft
        self._unacked_bytes -= sum([len(oldest()) for _ in range(count)])
        self._first += count
        self._maybe_stored = max(self._maybe_stored - count, 0)
        self.acked += count
        self._trouble_over(found=True)

    def _stop(self) -> None:
        """Something is wrong with the batch: send no more, an answer will say what was stored."""
        if self._state is not State.ENDING:
            self._moved = self._heard
        self._state = State.ENDING
        self._resuming = False

    def _over(self, count: int) -> None:
        """The batch is over, and this number of its messages is stored."""
        self._acked_up_to(count)
        refusal = self._refusals.get(count + 1)
        left = len(self._placed)
        self._leave_batch()
        if refusal is not None and left and may_pass(refusal):
            self._hold_front(refusal)
        elif refusal is not None and left:
            self._fail_front(1, in_words(refusal, self._subject_of(self._waiting[0])))
        elif left:
            self._try_again(left, DisconnectedError("the message did not reach the stream"))
        self._pump()

    def _refused_at(self, place: int, operation: int, error: HeadraceError) -> None:
        """What was sent under this place is not stored, or not understood."""
        if operation in (PING, END):
            self._unknown(error)
        elif place > 1:
            self._refusals.setdefault(place, error)
            if self._state is State.OPEN:
                self._steer(PING)  # the total comes when the stream sees that a message is missing
            self._stop()
        elif is_unavailable(error):
            self._give_up(str(error))
        elif may_pass(error) or is_passing(error):
            self._leave_batch()
            self._hold_front(error)
            self._pump()
        else:
            self._refusals[1] = error
            self._over(0)

    def _unknown(self, error: HeadraceError) -> None:
        """The stream was asked about the batch, and does not know it, or is not there."""
        if self._repeats or not isinstance(error, NoRespondersError):
            self._lose(
                DisconnectedUnknownError(f"the stream does not know what it stored: {error}")
            )
        elif self._unheard == self._retries:
            self._lose(error)
        else:
            self._unheard += 1
            self._session.loop.call_later(RETRY_PAUSE_S, self._ask_again, self._prefix)

    def _ask_again(self, prefix: bytes) -> None:
        if prefix == self._prefix and self._route is not None and self._session.link is not None:
            self._steer(PING)

    def _hold_front(self, error: HeadraceError) -> None:
        """The message in front is not stored, but may be later: wait, and find out."""
        self._tries += 1
        if not self._retries or (is_passing(error) and self._tries > self._retries):
            self._fail_front(1, in_words(error, self._subject_of(self._waiting[0])))
            return
        self._begin(State.PAUSED, self._find_out(error))

    def _begin(self, state: State, work: Coroutine[Any, Any, None]) -> None:
        """Something that is done without a batch."""
        self._state = state
        name = f"headrace fast publisher {state.name.lower()}"
        self._finding = self._session.loop.create_task(work, name=name)

    async def _settle(self) -> None:
        """Publish what may be stored by itself, until it is known again how far the stream is."""
        limit = self._delivery_timeout
        while self._doubtful:
            try:
                ack = await publish_command(self._api, self._waiting[0], self._ack_timeout, limit)
            except ConnectionClosedError:
                return  # the publisher is told, too
            except HeadraceError as error:
                # A refusal is of one message, whatever becomes of the others.
                count = 1 if isinstance(error, JetStreamApiError) else self._doubtful
                self._doubtful -= count
                self._fail_front(count, error)
            else:
                self._last_sequence = ack.seq
                self._acked_front(self._waiting, 1)
                self._doubtful = self._doubtful - 1 if ack.duplicate else 0
        self._state = State.IDLE
        self._pump()
        self._progress()

    async def _find_out(self, error: HeadraceError) -> None:
        """Ask which stream has the subject of the first message. If none has, it fails; otherwise pause."""
        subject = self._subject_of(self._waiting[0])
        who, of = Who.STREAM, f"the stream of {subject!r}"
        if isinstance(error, NoRespondersError):
            try:
                who, of = await who_has(self._api, subject)
            except ConnectionClosedError:
                return  # the publisher is told, too
        if who is Who.NOBODY or (who is Who.UNTOLD and self._tries > self._retries):
            self._fail_front(1, nobody_has(subject))
        elif self._is_over_time():
            self._fail_front(len(self._waiting), no_leader(of, self._delivery_timeout))
        else:
            if not is_passing(error):
                self._wait.begin(of)
            await asyncio.sleep(next(self._pauses))
        self._state = State.IDLE
        self._pump()
        self._progress()

    def _is_over_time(self) -> bool:
        """Whether the message in front has waited for too long; the clock begins with the question."""
        now = self._session.loop.time()
        if self._since is None:
            self._since = now
        return now - self._since >= self._delivery_timeout

    def _trouble_over(self, *, found: bool) -> None:
        """The message in front is stored, or has failed."""
        self._tries = 0
        if self._since is not None:
            self._since, self._pauses = None, pauses()
        self._wait.end(found=found)

    # Failures and second attempts

    def _lose(self, reason: HeadraceError) -> None:
        """What was sent may be stored or not: send it again, or report it."""
        left = len(self._placed)
        self._leave_batch()
        self._maybe_stored = max(left, self._maybe_stored)
        if left and self._try_again(left, reason) and self._repeats:
            self._doubtful = left if self._session.info.cluster else 0
        self._pump()

    def _try_again(self, count: int, reason: HeadraceError) -> bool:
        """Messages at the front were sent for nothing; report them when that was too often."""
        self._tries += 1
        if self._is_over_time() if self._repeats else self._tries > self._retries:
            self._fail_front(count, reason)
            return False
        return True

    def _give_up(self, why: str) -> None:
        """There are no fast batches here, and will not be."""
        self._broken = ConfigurationError(
            f"no fast batches: {why}; they need a stream with allow_batched, "
            f"and publisher(fast=False) does without"
        )
        self._leave_batch()
        self._heads.clear()
        self._fail_front(len(self._waiting), self._broken)

    def _fail_front(self, count: int, error: Exception) -> None:
        self._trouble_over(found=False)
        self._maybe_stored = max(self._maybe_stored - count, 0)
        for _ in range(count):
            command = self._waiting.popleft()
            self._unacked_bytes -= len(command)
            self._first += 1
            self._report(self._first - 1, self._subject_of(command), error)

    def _progress(self) -> None:
        if self._waiters and not self._is_full:
            wake_all(self._waiters)
        if self._flushers and not self._waiting and self._state is State.IDLE:
            wake_all(self._flushers)

    # Time

    def _beat(self) -> None:
        """Called regularly during a batch: end it when idle, ask for the state when no answer comes."""
        loop = self._session.loop
        self._timer = None
        if not self._is_open or self._state is State.IDLE:
            return
        pause = min(LINGER_S, self._ack_timeout / 2)
        self._timer = loop.call_later(pause, self._beat)
        now = loop.time()
        if self._session.link is None or self._state in (State.PAUSED, State.SETTLING):
            self._heard = self._moved = now
            return
        silence = now - self._heard
        if self._state is State.OPEN:
            if silence >= max(LINGER_S, 2 * self._round_trip):
                self._end()
        elif silence >= self._ack_timeout or now - self._moved >= self._end_max:
            self._session.doubt.begin()
            sent = f"sent {self._tries + 1} time(s)"
            limit = self._ack_timeout if silence >= self._ack_timeout else self._end_max
            self._lose(
                TimeoutUnknownError(f"no answer within {limit} s, {sent}: it may be stored or not")
            )
            self._progress()
        elif silence >= self._ack_timeout / 2 and not self._pinged:
            self._pinged = True
            self._steer(PING)

    # The connection

    def connection_lost(self) -> None:
        """What was under way may have come; the stream will say, if anything may be sent again."""
        if self._retries == 0:
            lost = "the connection was lost before the ack came"
            sent = max(len(self._placed), self._maybe_stored)
            self._leave_batch()
            self._fail_front(sent, DisconnectedUnknownError(f"{lost}: it may be stored or not"))
            self._fail_front(len(self._waiting), DisconnectedError(f"{lost}; it was not sent"))
        elif self._route is not None:
            self._state = State.ENDING
            self._resuming = True
        self._refuse_if_away()
        self._progress()

    def connection_restored(self) -> None:
        self._max_payload = self._session.info.max_payload
        if self._route is not None:
            self._heard = self._moved = self._session.loop.time()
            self._pinged = True
            self._steer(PING)
        else:
            self._pump()
        self._progress()


async def publish_command(api: Api, command: bytes, seconds: float, limit: float) -> PubAck:
    """Publish what a PUB or HPUB command does, with an id among its headers, in an ordinary way.

    An answer is awaited for ``seconds``, and a leader for ``limit`` seconds. Raises as ``JetStream.publish``.
    """
    subject, block, payload = parts_of(command)
    again = PublishAgain(api, subject, RETRIES, deduplicated=True, expected=0)
    attempt = partial(ask_stream, api.session, subject, block, payload, seconds)
    return await patiently(api.session, limit, attempt, again.awaited)


def parts_of(command: bytes) -> tuple[str, bytes, bytes]:
    """Subject, headers and payload of a PUB or HPUB command that has a reply."""
    line, _, data = command.partition(b"\r\n")
    words = line.split(b" ")
    head = int(words[3]) if words[0] == b"HPUB" else 0
    return words[1].decode(), data[:head], data[head:-2]
