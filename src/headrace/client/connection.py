"""The asyncio connection: publish, subscribe, request, drain; restored by itself when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ..errors import ConfigurationError, ConnectionClosedError, RequestTimeoutError
from ..subjects import check_pattern, check_subject, is_valid_subject
from ..wire.encode import pub
from .events import Event
from .health import WELL, ConnectionState, Health, unwell
from .jetstream.consuming.feed import Feed
from .jetstream.fetch import Fetch
from .message import HeadersLike, Message, Payload, header_block, payload_bytes, raise_if_failed
from .metrics import ConnectionStats, stats_of
from .net.handshake import ServerInfo, parse_servers
from .net.options import Options
from .net.outbox import WORDS_BYTES_MAX, check_line, check_loop, require_loop
from .net.session import Change, Session, State, Subscriber
from .subscription import PENDING_BYTES_DEFAULT, PENDING_MESSAGES_DEFAULT, Subscription

if TYPE_CHECKING:
    from .jetstream_context import JetStream
    from .net.connect_options import ConnectOptions
    from .services import Service


READ_TIMEOUT_S: Final = 2.0  # for the server to say that it has read what goes back
CANCEL_TIMEOUT_S: Final = 1.0  # for a callback that is cancelled to end
_CLOSED: Final = "the connection is closed: by close()"


async def wind_up(session: Session, caller: object) -> None:
    """Let nothing begin any more, give back what nobody took, and wait for what is in hand.

    What is in the hands of ``caller``, a task or the number of a thread, is not waited for. A callback that
    runs for longer than the option ``close_timeout`` is cancelled; on a thread it cannot be.
    """
    began = session.loop.time()
    leaving = begin_to_leave(session, caller, ConnectionClosedError(_CLOSED))
    residents = list(session.residents)
    hands: list[list[asyncio.Future[Any]]] = []
    goes_back = False
    for observer in list(session.observers):
        if any(each._works_with(observer) for each in residents):
            continue
        if isinstance(observer, Feed):
            goes_back |= observer.is_over  # what nobody took of one whose route has ended
            observer.stop_now(ConnectionClosedError(_CLOSED))
            hands += observer.hands(caller)
        elif isinstance(observer, Fetch):
            observer.give_up(ConnectionClosedError(_CLOSED))
    for subscription in list(session.subscriptions):
        if isinstance(subscription, Subscription):
            subscription._stop_calling()
            worker = subscription._worker
            if worker is not None and worker is not caller:
                hands.append([worker])
    late = await _until_handled(hands, session.options.close_timeout)
    left = began + session.options.close_timeout - session.loop.time()
    late += await until_left(leaving, max(0.0, left))
    if late:
        session.report(
            RequestTimeoutError(
                f"closed while {len(late)} messages were still being handled after "
                f"{session.options.close_timeout} s (option close_timeout); what was not acknowledged "
                "is delivered again"
            )
        )
    # What is on its way goes back, too, also of what ended a moment before this.
    if (goes_back or session.routes.ending) and session.link is not None:
        read = session.keepalive.ping()
        await asyncio.wait([read], timeout=READ_TIMEOUT_S)
        if read.done() and not read.cancelled():
            read.exception()  # a lost link ends the wait as well


def begin_to_leave(
    session: Session, caller: object, reason: Exception | None = None
) -> list[asyncio.Task[None]]:
    """Have all that have an orderly way to leave begin to, within this turn."""
    residents = list(session.residents)
    for each in residents:
        each._begin_to_leave(caller, reason, is_cut_off=session.link is None)
    return [session.loop.create_task(each._until_left(caller)) for each in residents]


async def until_left(
    leaving: list[asyncio.Task[None]], timeout: float | None
) -> list[asyncio.Task[None]]:
    """Wait until they have left. Returns those that had not after ``timeout`` seconds; what they have in hand
    is cancelled then, and when this is."""
    if not leaving:
        return []
    try:
        _, late = await asyncio.wait(leaving, timeout=timeout)
    except asyncio.CancelledError:
        for task in leaving:
            task.cancel()
        raise
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=CANCEL_TIMEOUT_S)
    return list(late)


async def _until_handled(
    hands: list[list[asyncio.Future[Any]]], timeout: float
) -> list[asyncio.Future[Any]]:
    """Wait for each of ``hands``, until one of its futures is done. Returns those that never were, cancelled
    if they are tasks of callbacks."""
    waits = [asyncio.ensure_future(_first(each)) for each in hands if each]
    if not waits:
        return []
    try:
        await asyncio.wait(waits, timeout=timeout)
    finally:
        for wait in waits:
            wait.cancel()
    late = [each[0] for each in hands if each and not any(future.done() for future in each)]
    callbacks = [each[0] for each in hands if len(each) == 1 and isinstance(each[0], asyncio.Task)]
    callbacks = [task for task in callbacks if not task.done()]
    for task in callbacks:
        task.cancel()
    if callbacks:
        await asyncio.wait(callbacks, timeout=CANCEL_TIMEOUT_S)
    return late


async def _first(futures: list[asyncio.Future[Any]]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


DEFAULT_SERVER: Final = "nats://127.0.0.1:4222"


def connect(
    servers: str | Sequence[str] = DEFAULT_SERVER,
    *,
    options: Options | None = None,
    **keywords: Unpack[ConnectOptions],
) -> Connecting:
    """Connect to one of ``servers``: ``connection = await connect(…)``, or ``async with connect(…)``.

    Args:
        servers: a URL ``nats://[user:password@|token@]host[:port]`` or ``tls://…``, several separated
            by commas, or a sequence.
        options: prepared settings; keywords are the fields of ``Options`` and make new ones.

    Raises (when awaited):
        ConfigurationError: a URL or an option is wrong.
        AuthorizationError: the credentials were refused.
        ConnectFailedError: no server could be reached; the text says why, for each.
    """
    settings = settings_from(options, keywords)
    return Connecting(partial(Session, parse_servers(servers), settings))


def settings_from(options: Options | None, keywords: ConnectOptions) -> Options:
    """The options meant by the arguments of ``connect``. Raises ConfigurationError."""
    if options is not None and keywords:
        raise ConfigurationError("give connect either options=… or single keywords, not both")
    return options if options is not None else Options.of(keywords)


class Connecting:
    """What ``connect`` returns: awaitable, and an async context manager that closes at the end.

    Args:
        make_session: makes the session, on the event loop.
    """

    __slots__ = ("_connection", "_make_session")

    def __init__(self, make_session: Callable[[], Session]) -> None:
        self._make_session = make_session
        self._connection: Connection | None = None

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._connect().__await__()

    async def _connect(self) -> Connection:
        require_loop()
        session = self._make_session()
        await session.start()
        return Connection(session)

    async def __aenter__(self) -> Connection:
        self._connection = await self._connect()
        return self._connection

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        assert self._connection is not None
        await self._connection.__aexit__(kind, error, traceback)


class Connection:
    """A connection to a NATS server or a Headrace broker; made by ``connect``.

    Everything that sends is a coroutine function, and returns once the bytes are queued; they leave at
    the end of the event loop's turn. A lost connection is restored in the background (see ``Options``):
    subscriptions are renewed, publishes wait in a bounded buffer. Not thread-safe.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "connected" if self.is_connected else "restoring"
        return f"<Connection {self.server} {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Send what is queued and close."""
        await self.close()

    # State

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment. A server that answers neither a call nor then a
        ping (option ``ping_timeout``) counts as gone."""
        return self._session.link is not None and not self._session.loop.is_closed()

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        return self._session.is_closed

    @property
    def state(self) -> ConnectionState:
        """``connected``, ``disconnected`` and being restored, ``draining``, ``closed``; before the first
        connection ``connecting``."""
        state = self._session.state
        if state is State.CLOSED:
            return "closed"
        if state is State.CONNECTING:
            return "connecting"
        if not state.may_subscribe:
            return "draining"
        return "connected" if state is State.OPEN else "disconnected"

    def health(self) -> Health:
        """Whether there is a connection that can be used; if not, why, and since when."""
        session = self._session
        if session.loop.is_closed() and not self.is_closed:
            return unwell("the event loop that the connection was made in is closed")
        if self.state == "connected":
            return WELL
        if session.outage is not None:
            return unwell(str(session.outage))
        return unwell(f"the connection is {self.state}")

    @property
    def server(self) -> str:
        """The URL of the server connected to, or last connected to, without credentials."""
        return str(self._session.server or "")

    @property
    def servers(self) -> list[str]:
        """Every server known: given, and discovered."""
        return [str(address) for address in self._session.pool.addresses]

    @property
    def server_info(self) -> ServerInfo:
        """The server's last INFO."""
        return self._session.info

    @property
    def max_payload(self) -> int:
        """The largest payload with headers the server accepts, in bytes."""
        return self._session.info.max_payload

    @property
    def unsent_bytes(self) -> int:
        """Output that has not reached the socket yet."""
        return self._session.outbox.unsent_bytes

    @property
    def reconnects(self) -> int:
        """How often the connection was restored."""
        return self._session.reconnects

    def stats(self) -> ConnectionStats:
        """What the connection has done so far; see ``headrace.client.metrics`` for scrapers."""
        return stats_of(self._session)

    def events(self) -> AsyncIterator[Event]:
        """What happens to the connection from now on, until it is closed."""
        return self._session.hub.events()

    # Publishing

    async def publish(
        self, subject: str, payload: Payload = b"", *, headers: HeadersLike = None, reply: str = ""
    ) -> None:
        """Send a message to whoever listens now; nobody confirms it.

        Returns at once unless more than ``outbound_bytes`` wait for the server to take them. Cancelled
        while it waits, it sends nothing. While disconnected the message waits in a buffer, and is sent
        when the connection is back.

        Raises:
            InvalidSubjectError: the subject is malformed or has wildcards.
            LimitExceededError: larger than ``max_payload``, or the subject is too long for a line.
            BufferFullError: disconnected, and the buffer for that is full.
            DisconnectedError: disconnected, and the option ``fail_while_disconnected`` is set.
            ConnectionClosedError: the connection is closed or drained.
        """
        if self._session.outbox.over_limit:
            await self._session.outbox.wait_for_room()
        self.publish_nowait(subject, payload, headers=headers, reply=reply)

    def publish_nowait(
        self, subject: str, payload: Payload = b"", *, headers: HeadersLike = None, reply: str = ""
    ) -> None:
        """As ``publish``, but never waits: raises BufferFullError instead."""
        session = self._session
        sent_to, answered_at = session.check_subject(subject), b""
        if reply:
            answered_at = session.check_subject(reply)
            if len(sent_to) + len(answered_at) > WORDS_BYTES_MAX:
                check_line(sent_to, len(answered_at))
        if not session.state.may_publish:
            raise ConnectionClosedError("the connection was drained, nothing more can be published")
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        block = header_block(headers) if headers else b""
        if (trace := session.trace) is not None:
            block = trace(block)
        session.check_size(len(block) + len(payload))
        session.publish(pub(sent_to, answered_at, block, payload))

    async def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a request and return its first answer.

        Args:
            timeout: seconds to wait; None means the option ``request_timeout``.

        Raises:
            InvalidSubjectError: the subject is malformed or has wildcards.
            LimitExceededError: larger than ``max_payload``, or the subject is too long for a line.
            NoRespondersError: nobody listens on the subject.
            RequestTimeoutError: no answer in time: if it was sent, that is its subclass
                TimeoutUnknownError; if not, it is withdrawn.
            DisconnectedError: the connection was lost before the answer came: if it was sent, that is
                DisconnectedUnknownError. Or there is none, and ``fail_while_disconnected`` is set.
            ServiceError: who answered says that it failed.
        """
        if (spans := self._session.spans) is not None:
            with spans.requesting(subject, len(payload)):
                return await self._request(subject, payload, headers, timeout)
        return await self._request(subject, payload, headers, timeout)

    async def _request(
        self, subject: str, payload: Payload, headers: HeadersLike, timeout: float | None
    ) -> Message:
        self._session.check_subject(subject)
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        block = header_block(headers) if headers else b""
        if (trace := self._session.trace) is not None:
            block = trace(block)
        self._session.check_size(len(block) + len(payload))
        seconds = self._session.options.request_timeout if timeout is None else timeout
        answer = await self._session.requests.ask(subject, block, payload, seconds)
        if answer[4]:
            raise_if_failed(answer)
        return Message(self._session, answer)

    # Subscribing

    async def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        callback: Callable[[Message], object] | None = None,
        pending_messages: int = PENDING_MESSAGES_DEFAULT,
        pending_bytes: int = PENDING_BYTES_DEFAULT,
        answer_errors: bool | None = None,
    ) -> Subscription:
        """Receive the messages whose subject matches ``subject`` (``*`` and ``>`` are wildcards).

        Args:
            queue: of all subscribers with this group name, one receives each message.
            callback: called with each message: a plain function at once, on the event loop; a coroutine
                function one message after the other. Without it, iterate the subscription.
            pending_messages, pending_bytes: how much may wait to be taken; see ``Subscription``.
            answer_errors: whether a callback that raises answers whoever asked, with ServiceError; None:
                if there is a queue, or ``subject`` has no wildcards. Give False if the callback only listens.
        """
        check_pattern(subject.encode())
        is_literal = is_valid_subject(subject.encode())
        if queue:
            check_subject(queue.encode())
        if not self._session.state.may_subscribe:
            raise ConnectionClosedError(
                "the connection is draining, nothing more can be subscribed"
            )
        self._session.raise_if_unusable()
        subscription = Subscription(
            self._session,
            subject,
            queue,
            pending_messages=pending_messages,
            pending_bytes=pending_bytes,
            answer_errors=bool(queue) or is_literal if answer_errors is None else answer_errors,
        )
        if callback is not None:
            subscription.start(callback)
        return subscription

    def new_inbox(self) -> str:
        """A subject nobody else uses, for replies."""
        return self._session.new_inbox()

    def jetstream(
        self,
        *,
        domain: str = "",
        prefix: str = "",
        timeout: float | None = None,
        delivery_timeout: float | None = None,
    ) -> JetStream:
        """The JetStream context of this connection; see ``JetStream`` for the arguments."""
        from .jetstream_context import JetStream

        return JetStream(
            self, domain=domain, prefix=prefix, timeout=timeout, delivery_timeout=delivery_timeout
        )

    async def add_service(
        self,
        name: str,
        *,
        version: str,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue: str | None = "q",
    ) -> Service:
        """A service that other clients find by its name, and whose endpoints answer requests.

        Args:
            name: letters, digits, ``-`` and ``_``; instances of one service have the same.
            version: a semantic version, as ``1.0.0``.
            description, metadata: what others are told of it.
            queue: the queue group of its endpoints, of whose members one answers each request; None is none.

        Raises:
            ConfigurationError, InvalidSubjectError: an argument is wrong.
        """
        from .services import Service

        service = Service(
            self,
            name,
            version=version,
            description=description,
            metadata=metadata,
            queue=queue,
        )
        return await service._start()

    # Beginning and end

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the server has read everything sent so far.

        While disconnected it waits for the next connection. ``timeout`` None: ``request_timeout``.

        Raises:
            RequestTimeoutError: not within ``timeout`` seconds.
            DisconnectedError: the connection was lost meanwhile; what was sent may be lost.
        """
        seconds = self._session.options.request_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                await self._session.flush()
        except TimeoutError as error:
            self._session.doubt.begin()
            raise RequestTimeoutError(
                f"the server did not answer a PING within {seconds} s"
            ) from error

    async def drain(self) -> None:
        """Stop receiving, let everything received be taken, send what is queued, then close.

        Whoever takes may publish meanwhile. Running consumes are drained as well. Gives up waiting for
        the takers after the option ``drain_timeout``, and reports that as an event. Without a connection
        it waits for no other one: what could not be sent is an event, too, with an UnsentError.
        """
        await self._drain(asyncio.current_task())

    async def _drain(self, caller: object) -> None:
        """``drain``, without waiting for ``caller`` to take its messages."""
        session = self._session
        session.raise_if_unusable()
        drained = list(session.subscriptions)
        try:
            async with asyncio.timeout(session.options.drain_timeout):
                await until_left(begin_to_leave(session, caller), None)
                drains = [each._drain_for(caller) for each in drained]
                drains += [
                    each.drain_for(caller)
                    for each in list(session.observers)
                    if isinstance(each, Feed)
                ]
                session.change(Change.DRAIN)
                for error in await asyncio.gather(*drains, return_exceptions=True):
                    if isinstance(error, Exception):
                        session.report(error)
                session.change(Change.EMPTIED)
                if session.link is not None:
                    session.doubt.begin()  # so that a silent server does not hold it up for long
                    await session.flush()
        except TimeoutError:
            session.report(self._gave_up_draining(drained))
        except ConnectionError as error:
            session.report(error)
        finally:
            await self._close(caller)

    def _gave_up_draining(self, drained: Sequence[Subscriber]) -> RequestTimeoutError:
        left = [each for each in drained if each.pending_messages]
        count = sum(each.pending_messages for each in left)
        what = (
            f"{count} message(s) were not taken: {left[0]!r}" if left else "the server was silent"
        )
        return RequestTimeoutError(
            f"drain gave up after {self._session.options.drain_timeout} s (option drain_timeout): {what}"
        )

    async def close(self) -> None:
        """Send what is queued and end for good. Whoever waits gets ConnectionClosedError.

        No callback begins any more. Messages of consumers that nobody took go back at once, to be delivered
        again. One in hand may still be handled and acknowledged, for ``close_timeout`` seconds; it is not
        waited for where its handler is what calls. Without a connection, or where the server takes nothing,
        what could not be sent is an event, with an UnsentError.
        """
        check_loop(self._session.loop)
        await self._close(asyncio.current_task())

    async def _close(self, caller: object) -> None:
        """``close``, without waiting for ``caller`` to handle its message."""
        try:
            if not self._session.is_closed:
                await wind_up(self._session, caller)
        finally:
            await self._session.close()
