"""What keeps a connection going: link, output, routes, keep-alive, restoration. Not public.

``Connection`` is the face of it; subscriptions, requests, fetches and publishers work on it directly.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol

from ...api.acks import NAK
from ...errors import (
    ConnectionClosedError,
    DisconnectedError,
    InvalidSubjectError,
    LimitExceededError,
    ProtocolError,
    UnsentError,
)
from ...subjects import check_subject
from ...wire.encode import unsub
from ...wire.frames import BAD, ERR, INFO, MSG, PING, PONG, PUB, Frame
from ...wire.inprocess import Chunk, FrameBatch, PublishRun
from ...wire.parser import Parser
from ..events import (
    Closed,
    Connected,
    Disconnected,
    ErrorEvent,
    Event,
    EventHub,
    LameDuck,
    LeaderWaitOver,
    Reconnected,
    WaitingForLeader,
)
from ..nuid import Nuid
from .handshake import ServerAddress, ServerInfo, lacks_permission, parse_info, server_error
from .link import Link, open_link
from .liveness import PING_COMMAND, Doubt, KeepAlive
from .options import Options
from .outbox import Outbox, Slip, check_line, check_loop
from .reconnect import Dial, Outage, ReadyLink, first_connection, restore
from .requests import Requests, explained
from .routes import Inboxes, Route, RouteTable
from .servers import ServerPool
from .waiting import TimeLimits

if TYPE_CHECKING:
    from ..spans import Spans


class Observer(Protocol):
    """What works over a connection and must know when it goes and comes back."""

    def connection_lost(self) -> None: ...

    def connection_restored(self) -> None: ...

    def connection_closed(self, reason: Exception) -> None: ...


class Subscriber(Protocol):
    """A subscription, as its connection knows it: counted, drained and ended."""

    @property
    def pending_messages(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...

    async def _drain_for(self, caller: object) -> None: ...

    def end(self) -> None: ...


class Resident(Protocol):
    """What works over a connection by several calls, and has an orderly way to leave it."""

    def _works_with(self, observer: Observer) -> bool:
        """Whether it ends ``observer`` itself."""

    def _begin_to_leave(
        self, caller: object, reason: Exception | None, *, is_cut_off: bool
    ) -> None:
        """Begin nothing more, wait for what is in hand, and give back the rest.

        Args:
            caller: the task, or the number of the thread, that wants it.
            reason: what it ends with.
            is_cut_off: there is no link, so nothing can be given back.
        """

    async def _until_left(self, caller: object) -> None:
        """Until that is done; not if it is ``caller`` who has a message. Cancelled, it cancels what is in
        hand."""


class PublisherNumbers(Protocol):
    """A windowed publisher, as the connection's statistics know it."""

    sent: int
    acked: int
    failed: int

    @property
    def in_flight(self) -> int: ...


class Counts:
    """What the parts of a session count themselves, a batch at a time."""

    __slots__ = (
        "acked", "answers", "dropped", "errors", "failed", "in_bytes", "in_messages", "published", "pulls",
        "sent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.in_messages = 0
        self.in_bytes = 0  # of links that are gone
        self.published = 0  # messages that went out in batches
        self.pulls = 0
        self.answers = 0
        self.dropped = 0
        self.errors = 0
        self.sent = self.acked = self.failed = 0  # of publishers that are closed


class State(Enum):
    """Of a session. ``…_RESTORING``: the link is lost, and another one is being looked for."""

    CONNECTING = auto()
    """There was no link yet."""
    OPEN = auto()
    OPEN_RESTORING = auto()
    DRAINING = auto()
    """Nothing new is subscribed; what was received may still be answered."""
    DRAINING_RESTORING = auto()
    DRAINED = auto()
    """Nothing more is published; what is queued is being sent."""
    DRAINED_RESTORING = auto()
    CLOSED = auto()

    @property
    def may_publish(self) -> bool:
        """Whether a drain allows it; a closed session refuses for another reason."""
        return self not in _DRAINED

    @property
    def may_subscribe(self) -> bool:
        """Whether a drain allows it; a closed session refuses for another reason."""
        return self not in _DRAINING and self not in _DRAINED


class Change(Enum):
    """What may happen to a session."""

    LINKED = auto()
    """A link is ready."""
    LOST = auto()
    """The link is lost, and another one is wanted."""
    DRAIN = auto()
    """The user wants it to end."""
    EMPTIED = auto()
    """Everything received was handled, or the time for that is over."""
    CLOSE = auto()


_DRAINING: Final = (State.DRAINING, State.DRAINING_RESTORING)
_DRAINED: Final = (State.DRAINED, State.DRAINED_RESTORING)

_ROWS: Final = (
    (State.CONNECTING, Change.LINKED, State.OPEN),
    (State.CONNECTING, Change.CLOSE, State.CLOSED),
    (State.OPEN, Change.LOST, State.OPEN_RESTORING),
    (State.OPEN, Change.DRAIN, State.DRAINING),
    (State.OPEN, Change.CLOSE, State.CLOSED),
    (State.OPEN_RESTORING, Change.LINKED, State.OPEN),
    (State.OPEN_RESTORING, Change.DRAIN, State.DRAINING_RESTORING),
    (State.OPEN_RESTORING, Change.CLOSE, State.CLOSED),
    (State.DRAINING, Change.LOST, State.DRAINING_RESTORING),
    (State.DRAINING, Change.DRAIN, State.DRAINING),  # a second task drains as well
    (State.DRAINING, Change.EMPTIED, State.DRAINED),
    (State.DRAINING, Change.CLOSE, State.CLOSED),
    (State.DRAINING_RESTORING, Change.LINKED, State.DRAINING),
    (State.DRAINING_RESTORING, Change.DRAIN, State.DRAINING_RESTORING),
    (State.DRAINING_RESTORING, Change.EMPTIED, State.DRAINED_RESTORING),
    (State.DRAINING_RESTORING, Change.CLOSE, State.CLOSED),
    (State.DRAINED, Change.LOST, State.DRAINED_RESTORING),
    (State.DRAINED, Change.DRAIN, State.DRAINED),
    (State.DRAINED, Change.EMPTIED, State.DRAINED),
    (State.DRAINED, Change.CLOSE, State.CLOSED),
    (State.DRAINED_RESTORING, Change.LINKED, State.DRAINED),
    (State.DRAINED_RESTORING, Change.DRAIN, State.DRAINED_RESTORING),
    (State.DRAINED_RESTORING, Change.EMPTIED, State.DRAINED_RESTORING),
    (State.DRAINED_RESTORING, Change.CLOSE, State.CLOSED),
    (State.CLOSED, Change.EMPTIED, State.CLOSED),  # closed under a drain
    (State.CLOSED, Change.CLOSE, State.CLOSED),
)
TRANSITIONS: Final = {(state, change): following for state, change, following in _ROWS}


class TransitionError(AssertionError):
    """A change that cannot happen in this state: a mistake in the client, not in its user."""


def after(state: State, change: Change) -> State:
    """The state that follows. Raises TransitionError."""
    try:
        return TRANSITIONS[state, change]
    except KeyError:
        raise TransitionError(
            f"{change.name} cannot happen to a session that is {state.name}"
        ) from None


SUBJECTS_SHOWN_MAX: Final = 3
_ACK_PREFIX: Final = b"$JS.ACK."


def unsent_error(chunks: Sequence[Chunk], why: str) -> UnsentError | None:
    """What says that these commands were not sent, or None if no message is among them.

    Acknowledgements are counted by themselves: their messages are delivered again.
    """
    subjects = [frame[1] for chunk in chunks for frame in _frames(chunk) if frame[0] == PUB]
    messages = [subject for subject in subjects if not subject.startswith(_ACK_PREFIX)]
    if not subjects:
        return None
    acks = len(subjects) - len(messages)
    first = tuple(each.decode() for each in dict.fromkeys(messages))[:SUBJECTS_SHOWN_MAX]
    said = []
    if messages:
        shown = ", ".join(map(repr, first))
        more = len(set(messages)) - len(first)
        said.append(
            f"{len(messages)} message(s) on {shown}" + (f" and {more} more" if more else "")
        )
    if acks:
        said.append(f"{acks} acknowledgement(s)")
    return UnsentError(f"{why}: not sent are {' and '.join(said)}", len(messages), first)


def _frames(chunk: Chunk) -> Iterator[Frame]:
    if isinstance(chunk, FrameBatch | PublishRun):
        yield from chunk.frames
    else:
        size = len(chunk)  # it is our own output, of whatever size
        yield from Parser.for_server(max_payload=size, max_control_line=size).feed(chunk)


CLOSE_TIMEOUT_S: Final = 2.0  # for the server to take the last bytes; then the socket is dropped
SUBJECTS_KNOWN_MAX: Final = 4096

_log = logging.getLogger("headrace.client")
_SID: Final = itemgetter(2)  # of a message; no other frame of a server has as many fields


class LeaderWaits:
    """The calls and publishers of one connection that wait for a leader. There is an event when the first one
    begins to wait, and one when the last one goes on or gives up.

    Args:
        time: the loop's.
        emit: tells of both.
    """

    def __init__(self, time: Callable[[], float], emit: Callable[[Event], object]) -> None:
        self._time = time
        self._emit = emit
        self._waiting: dict[str, tuple[int, float]] = {}  # how many, and since when
        self.total = 0

    @property
    def count(self) -> int:
        """How many wait at this moment: calls, and publishers."""
        return sum(count for count, _ in self._waiting.values())

    def begin(self, of: str) -> None:
        """Somebody waits for the leader of this."""
        self.total += 1
        count, since = self._waiting.get(of, (0, self._time()))
        self._waiting[of] = (count + 1, since)
        if not count:
            self._emit(WaitingForLeader(of))

    def end(self, of: str, found: bool) -> None:
        """One of them waits no longer."""
        count, since = self._waiting.pop(of)
        if count > 1:
            self._waiting[of] = (count - 1, since)
        else:
            waited = self._time() - since
            self._emit(LeaderWaitOver(of, waited, found))


class LeaderWait:
    """One call or publisher: says once that it waits and for whom, and once that it does no longer."""

    def __init__(self, waits: LeaderWaits) -> None:
        self._waits = waits
        self._of = ""

    def begin(self, of: str) -> None:
        """It waits for the leader of this, unless it does already."""
        if not self._of:
            self._of = of
            self._waits.begin(of)

    def end(self, *, found: bool) -> None:
        """It waits no longer, if it did."""
        if self._of:
            of, self._of = self._of, ""
            self._waits.end(of, found)


class Session:
    """One connection over all its links. Attributes are for this package only.

    ``publish`` queues publishes: while disconnected they wait for the next link, unless the option
    ``fail_while_disconnected`` is set. ``send`` always queues. Both raise as ``Outbox.put``.

    Args:
        outbox_type, dial: the output and the links of a socket, or those of a connection without one; see
            ``inprocess``.
        may_run_readers: whether a task that waits for a message may go on, and run a handler, where frames
            are received: in a callback of the event loop of its own.
    """

    def __init__(
        self,
        servers: Sequence[ServerAddress],
        options: Options,
        *,
        outbox_type: type[Outbox] = Outbox,
        dial: Dial = open_link,
        may_run_readers: bool = True,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.options = options
        self.random = random.Random()
        self.nuid = Nuid()
        self.pool = ServerPool(
            servers,
            randomize=options.randomize_servers,
            max_attempts=options.max_reconnect_attempts,
            random=self.random,
        )
        self._dial = dial
        self.may_run_readers = may_run_readers
        self.outbox = outbox_type(
            self.loop,
            limit=options.outbound_bytes,
            disconnected_limit=options.reconnect_buffer_bytes,
        )
        # No call between: they run per message.
        self.send: Callable[[Chunk], None] = self.outbox.put
        self.publish: Callable[[Chunk], None] = self.outbox.put
        self.routes = RouteTable()
        self.inboxes = Inboxes(
            self.routes, self.new_inbox, self.refuse, self.close_route, self._has_link
        )
        self.limits = TimeLimits(self.loop)
        self.requests = Requests(self)
        self.hub = EventHub(options.on_event)
        self.observers: dict[Observer, None] = {}
        self.on_confirmed: dict[Observer, Callable[[Frame], None]] = {}
        """Told of deliveries of a server before whose acknowledgement this one has confirmed."""
        self.subscriptions: dict[Subscriber, None] = {}
        self.residents: dict[Resident, None] = {}
        self.publishers: dict[PublisherNumbers, None] = {}
        self.counts = Counts()
        self.waits = LeaderWaits(self.loop.time, self.hub.emit)
        self.trace: Callable[[bytes], bytes] | None = None
        """Adds the active trace's context to a header block, if that was asked for."""
        self.spans: Spans | None = None
        """Makes spans of what is sent and processed, if that was asked for and can be had."""
        if options.tracing:
            from .. import spans
            from ..tracing import with_trace

            self.trace = with_trace
            self.spans = spans.Spans.if_installed()
        self.info = ServerInfo()
        self.server: ServerAddress | None = None
        self.link: Link | None = None
        self.state = State.CONNECTING
        self.outage: Outage | None = None
        self.reconnects = 0
        self._close_reason: ConnectionClosedError | None = None
        self._known_subjects: dict[str, bytes] = {}
        self.keepalive = KeepAlive(
            self.loop, options.ping_interval, options.max_pings_out, self.send_control
        )
        self.doubt = Doubt(
            self.loop, options.ping_timeout, self.keepalive, self.outbox, lambda: self.link
        )
        self._last_error: Exception | None = None
        self._restoring: asyncio.Task[None] | None = None

    # Sending

    def send_answers(self, data: Chunk, count: int = 1) -> None:
        """Queue answers to messages of a consumer, ``count`` of them in one piece. Raises as ``send``."""
        self.outbox.put(data)
        self.counts.answers += count
        self.counts.published += count - 1  # the outbox counts the piece

    def send_back(self, replies: list[bytes]) -> None:
        """Nak messages of a consumer; without a link they come back by themselves."""
        self.send_control(self.outbox.answers(replies, NAK))

    def refuse(self, frames: list[Frame]) -> None:
        """Send back the messages of a consumer among these frames."""
        replies = [frame[3] for frame in frames if frame[3]]
        if replies:
            self.send_back(replies)

    def send_once(self, data: Chunk) -> Slip | None:
        """Queue what somebody waits for, who is told when the link is lost: not to be sent again then.
        While disconnected it waits for the next link, as with ``publish``.

        Who waits no longer gives what this returns to ``outbox.withdraw``.
        """
        if self.link is not None:
            return self.outbox.put_slip(data, keep=False)
        self.check_linked()
        return self.outbox.put_slip(data, keep=True)

    def _has_link(self) -> bool:
        return self.link is not None

    @property
    def is_refusing(self) -> bool:
        """Whether what is sent now fails at once, since there is no link."""
        return self.options.fail_while_disconnected and self.link is None and not self.is_closed

    def check_linked(self) -> None:
        """Raises DisconnectedError: there is no link, and nothing is to wait for one."""
        if self.is_refusing:
            raise DisconnectedError(f"not sent: {self.where} (option fail_while_disconnected)")

    def _refuse(self, data: Chunk) -> None:
        self.check_linked()
        self.outbox.put(data)

    @property
    def where(self) -> str:
        """Why something was not sent, in words."""
        return str(self.outage or f"{self.server} takes no output at the moment")

    def send_control(self, data: Chunk) -> None:
        """Queue what concerns this link only: dropped while disconnected, never refused."""
        if self.link is not None:
            self.outbox.put_once(data)

    def open_route(
        self, subject: bytes, receive: Callable[[list[Frame]], None], queue: bytes = b""
    ) -> Route:
        """Subscribe; the command is queued (see ``send_control``).

        Raises LimitExceededError, WrongLoopError.
        """
        check_loop(self.loop)
        check_line(subject, len(queue))
        route = self.routes.add(subject, receive, queue)
        self.send_control(route.command())
        return route

    def close_route(self, route: Route) -> None:
        """Unsubscribe, if it was not done."""
        if self.routes.remove(route):
            self.send_control(unsub(route.sid))

    def refuse_rest(self, route: Route, frames: list[Frame]) -> None:
        """Unsubscribe, and send back the messages that came and those still on their way."""
        route.receive = self.refuse
        self.send_control(unsub(route.sid))
        self.routes.ending.add(route)
        self.keepalive.call_when_read(lambda: self.routes.remove(route))
        self.refuse(frames)

    def new_inbox(self) -> str:
        return f"{self.options.inbox_prefix}.{self.nuid.next()}"

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        return self.state is State.CLOSED

    def raise_if_closed(self) -> None:
        if self._close_reason is not None:
            raise ConnectionClosedError(str(self._close_reason))

    def raise_if_unusable(self) -> None:
        """Raises ConnectionClosedError, WrongLoopError: nothing can be begun, or not in this event loop."""
        self.raise_if_closed()
        check_loop(self.loop)

    def change(self, change: Change) -> None:
        """Note what happened to the session."""
        self.state = after(self.state, change)

    def check_subject(self, subject: str) -> bytes:
        """``subject`` as it is sent. Raises InvalidSubjectError, LimitExceededError: nothing can be."""
        known = self._known_subjects.get(subject)
        if known is not None:
            return known
        try:
            checked = check_subject(subject.encode())
        except (AttributeError, UnicodeEncodeError):
            raise InvalidSubjectError(f"subject {subject!r} is not text") from None
        check_line(checked)
        if len(self._known_subjects) < SUBJECTS_KNOWN_MAX:
            self._known_subjects[subject] = checked
        return checked

    def check_size(self, size: int) -> None:
        """Raises LimitExceededError: headers and payload together are more than the server accepts."""
        if size > self.info.max_payload:
            raise LimitExceededError(
                f"a message of {size} bytes (headers and payload); the server accepts at most "
                f"{self.info.max_payload}"
            )

    async def flush(self) -> None:
        """Wait until the server has read everything sent so far; for the next link if there is none.

        Raises DisconnectedError if the link is lost meanwhile.
        """
        self.raise_if_unusable()
        await self.keepalive.ping()

    def report(self, error: Exception, about: str = "") -> None:
        """Tell the user of an error that no caller is waiting for, and what it is about."""
        self.counts.errors += 1
        self.hub.emit(ErrorEvent(error, about))

    # Beginning and end

    async def start(self) -> None:
        """Make the first connection; raises as ``first_connection``."""
        try:
            found = await first_connection(self.pool, self.options, self.random, self._dial)
        except ConnectionClosedError as error:
            self.finish(error)
            raise
        self._install(found)
        _log.info("connected to %s", found.address)
        self.hub.emit(Connected(str(found.address)))

    async def close(self) -> None:
        """Send what is queued if the server takes it, then end for good."""
        link = self.link
        self.outbox.write_now()
        self.finish(None)
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        if link is not None:
            left = 0
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await link.close()
            except TimeoutError:
                left = link.transport.get_write_buffer_size()
            finally:
                if not link.is_lost:
                    link.abort(ConnectionClosedError("closed"))
            if left:
                self.report(
                    UnsentError(
                        f"closed, and {self.server} did not take the last {left} bytes within "
                        f"{CLOSE_TIMEOUT_S} s"
                    )
                )

    def finish(self, reason: Exception | None) -> None:
        """Close: nothing is sent or received from here on, and everything that waits fails."""
        if self.is_closed:
            return
        error = self._close_reason = (
            reason
            if isinstance(reason, ConnectionClosedError)
            else ConnectionClosedError(f"the connection is closed: {reason or 'by close()'}")
        )
        self.change(Change.CLOSE)
        self._drop_link()
        unsent = unsent_error(self.outbox.held(), f"closed, {self.where}")
        if self.outage is not None:
            self.outage.over()
        if unsent is not None:
            self.report(unsent)
        if reason is not None and self.server is not None:
            _log.warning("the connection to %s is over: %s", self.server, str(reason))
        self.keepalive.stop(error)
        self.doubt.end()
        self.outbox.close(error)
        self.requests.fail(error)
        self.limits.close()
        self._tell(lambda observer: observer.connection_closed(error))
        for subscription in list(self.subscriptions):
            subscription.end()
        self.hub.emit(Closed(reason))

    # The link

    def _install(self, found: ReadyLink) -> None:
        """A link is ready: it becomes the connection's, and subscriptions are made on it."""
        self.change(Change.LINKED)
        link, self.server, _ = found
        self.link = link
        self.publish = self.outbox.put
        link.outbox = self.outbox
        link.on_frames = self._hand_out
        if self.may_run_readers:  # what is said to it is written at once
            link.on_frames = partial(self.outbox.write_after, self._hand_out)
        link.on_lost = self._lost
        self._last_error = None
        self.pool.succeeded(found.address)
        before = self.info.server_id
        self._read_info(link.info)
        if before and self.info.server_id != before:
            self.routes.renew()
        pings = PING_COMMAND * self.keepalive.waiting
        self.outbox.attach(link.transport, self.routes.commands() + pings)
        self.keepalive.start(link)
        early, link.early = link.early, []
        if early:
            link.on_frames(early)

    def _drop_link(self) -> None:
        if self.link is not None:
            self.counts.in_bytes += self.link.received_bytes
        self.link = None

    def _lost(self, link: Link, reason: Exception | None) -> None:
        if link is not self.link:
            return
        self._drop_link()
        lost = DisconnectedError("the connection was lost before the answer came")
        self.keepalive.stop(lost)
        self.doubt.end()
        self.outbox.detach()
        self.inboxes.forget()
        self.requests.lost()
        cause = self._last_error or reason or ConnectionClosedError("the server closed it")
        if not self.options.reconnect:
            self.finish(ConnectionClosedError(f"the connection to {self.server} was lost: {cause}"))
            return
        self.change(Change.LOST)
        self.outage = Outage(self.loop, str(self.server), self.options.name, cause)
        if self.options.fail_while_disconnected:
            self.publish = self._refuse
        self.hub.emit(Disconnected(str(self.server), cause))
        self._tell(lambda observer: observer.connection_lost())
        self._restoring = self.loop.create_task(self._restore(), name="headrace reconnect")

    async def _restore(self) -> None:
        outage = self.outage
        assert outage is not None, "a connection is restored that was not lost"
        try:
            dial = outage.noting(self._dial)
            found = await restore(self.pool, self.options, self.random, dial)
            self._install(found)
        except Exception as error:  # whatever it is, everything that waits must fail
            link = self.link
            self.finish(error)
            if link is not None:
                link.abort(error)
            return
        self.reconnects += 1
        self._restoring = None
        outage.over(str(found.address), found.attempts)
        self.outage = None
        self.hub.emit(Reconnected(str(found.address), found.attempts))
        self._tell(lambda observer: observer.connection_restored())

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        """Tell all who work over the connection. What one of them raises is reported: the others go on."""
        for observer in list(self.observers):
            try:
                tell(observer)
            except Exception as error:
                self.report(error)

    def _hand_out(self, frames: list[Frame]) -> None:
        """Hand neighbouring messages of one subscription over together."""
        routes = self.routes.by_sid
        index, end = 0, len(frames)
        try:
            sid = frames[0][2]
            is_for_one = end == 1 or list(map(_SID, frames)).count(sid) == end
        except IndexError:  # some are no messages
            is_for_one = False
        if is_for_one:  # as usual
            self.counts.in_messages += end
            route = routes.get(sid)
            if route is not None:
                route.receive(frames)
            return
        while index < end and self._close_reason is None:  # a reader may go on here, and close it
            frame = frames[index]
            start = index
            index += 1
            if frame[0] != MSG:
                self._control(frame)
                continue
            sid = frame[2]
            while index < end and (frame := frames[index])[0] == MSG and frame[2] == sid:
                index += 1
            self.counts.in_messages += index - start
            route = routes.get(sid)
            if route is not None:
                route.receive(frames if index - start == end else frames[start:index])

    def _control(self, frame: Frame) -> None:
        op = frame[0]
        if op == PING:
            self.send_control(b"PONG\r\n")
        elif op == PONG:
            self.keepalive.pong()
        elif op == INFO:
            try:
                self._read_info(parse_info(frame[1]))
            except ProtocolError as error:
                self.report(error)
        elif op == ERR:
            self._read_error(frame[1])
        elif op == BAD and self.link is not None:
            self.link.abort(frame[1])

    def _read_error(self, text: str) -> None:
        error = server_error(explained(text, self.options.inbox_prefix))
        if not self.requests.refused(text):  # those ask on and need not be told twice
            self.report(error)
        if not lacks_permission(text):
            self._last_error = error

    def _read_info(self, info: ServerInfo) -> None:
        was_lame, self.info = self.info.ldm, info
        if self.options.discover_servers:
            self.pool.discover(info.connect_urls, self.server)
        if info.ldm and not was_lame:
            self.hub.emit(LameDuck(str(self.server)))
