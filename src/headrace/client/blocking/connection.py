"""The blocking connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, Unpack

from ...errors import ConnectionClosedError
from .. import connection as aio
from ..callbacks import check_plain
from ..connection import DEFAULT_SERVER
from ..events import Event
from ..message import HeadersLike
from ..metrics import ConnectionStats
from ..net.handshake import ServerInfo
from ..net.options import ConnectOptions, Options
from ..subscription import PENDING_BYTES_DEFAULT, PENDING_MESSAGES_DEFAULT
from .jetstream import JetStream
from .messages import Message
from .portal import Blocking, Portal, blocking, callback_here
from .subscription import Subscription

__all__ = ["Connection", "connect"]


def connect(
    servers: str | Sequence[str] = DEFAULT_SERVER,
    *,
    options: Options | None = None,
    **keywords: Unpack[ConnectOptions],
) -> Connection:
    """Connect to one of ``servers``; arguments and errors are those of ``headrace.connect``.

    The connection lives on a background thread of its own, which ends with ``close``. ``on_event`` is
    called on that thread and must not make blocking calls.
    """
    return connect_on(Portal, aio.connect(servers, options=options, **keywords))


def connect_on(make_portal: Callable[[], Portal], connecting: aio.Connecting) -> Connection:
    """The blocking connection for what ``aio.connect`` returned, on the loop of a portal."""
    portal = make_portal()
    try:
        inner = portal.run(connecting._connect())
    except BaseException:
        portal.stop()
        raise
    portal.on_error = inner._session.report
    return Connection(portal, inner)


class Connection(Blocking):
    """A connection to a NATS server or a Headrace broker, for threads and notebooks.

    The blocking twin of ``headrace.Connection``: same names, same errors. All its methods may be called
    from any thread of the process that made it.
    """

    __slots__ = ()
    _inner: aio.Connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # State

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._inner.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        return self._inner.is_closed

    @property
    def server(self) -> str:
        """The URL of the server connected to, or last connected to, without credentials."""
        return self._inner.server

    @property
    def servers(self) -> list[str]:
        """Every server known: given, and discovered."""
        return self._inner.servers

    @property
    def server_info(self) -> ServerInfo:
        """The server's last INFO."""
        return self._inner.server_info

    @property
    def max_payload(self) -> int:
        """The largest payload with headers the server accepts, in bytes."""
        return self._inner.max_payload

    @property
    def unsent_bytes(self) -> int:
        """Output that has not reached the socket yet."""
        return self._inner.unsent_bytes

    @property
    def reconnects(self) -> int:
        """How often the connection was restored."""
        return self._inner.reconnects

    def stats(self) -> ConnectionStats:
        """What the connection has done so far."""
        return self._portal.run(self._stats()) if not self._inner.is_closed else self._inner.stats()

    async def _stats(self) -> ConnectionStats:
        return self._inner.stats()

    def events(self) -> Iterator[Event]:
        """What happens to the connection from now on, until it is closed."""
        return _each(self._portal, self._portal.run(self._events()))

    async def _events(self) -> AsyncIterator[Event]:
        return self._inner.events()

    # Publishing and asking

    publish = blocking(aio.Connection.publish)
    flush = blocking(aio.Connection.flush)

    def publish_nowait(
        self, subject: str, payload: bytes = b"", *, headers: HeadersLike = None, reply: str = ""
    ) -> None:
        """As ``publish``, but never waits for room: raises BufferFullError instead."""
        self._portal.run(self._publish_nowait(subject, payload, headers, reply))

    async def _publish_nowait(
        self, subject: str, payload: bytes, headers: HeadersLike, reply: str
    ) -> None:
        self._inner.publish_nowait(subject, payload, headers=headers, reply=reply)

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: HeadersLike = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a request and return its first answer; see ``headrace.Connection.request``."""
        answer = self._portal.run(
            self._inner.request(subject, payload, headers=headers, timeout=timeout)
        )
        return Message._of(self._portal, answer._session, answer._frame)

    # Subscribing

    def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        callback: Callable[[Message], object] | None = None,
        pending_messages: int = PENDING_MESSAGES_DEFAULT,
        pending_bytes: int = PENDING_BYTES_DEFAULT,
    ) -> Subscription:
        """Receive the messages whose subject matches; see ``headrace.Connection.subscribe``.

        ``callback``, a plain function, is called with each message in turn, on a thread of the
        subscription's own.
        """
        check_plain("callback", callback)
        inner = self._portal.run(
            self._inner.subscribe(
                subject,
                queue=queue,
                pending_messages=pending_messages,
                pending_bytes=pending_bytes,
            )
        )
        subscription = Subscription(self._portal, inner)
        if callback is not None:
            subscription._start(callback)
        return subscription

    def new_inbox(self) -> str:
        """A subject nobody else uses, for replies."""
        return self._portal.run(self._new_inbox())

    async def _new_inbox(self) -> str:
        return self._inner.new_inbox()

    def jetstream(
        self,
        *,
        domain: str = "",
        prefix: str = "",
        timeout: float | None = None,
        delivery_timeout: float | None = None,
    ) -> JetStream:
        """The JetStream context of this connection; see ``headrace.JetStream`` for the arguments."""
        inner = self._inner.jetstream(
            domain=domain, prefix=prefix, timeout=timeout, delivery_timeout=delivery_timeout
        )
        return JetStream(self._portal, inner)

    # Ending

    def drain(self) -> None:
        """Stop receiving, let everything received be taken, send what is queued, then close."""
        try:
            self._portal.run(self._inner._drain(callback_here()))
        finally:
            self._portal.stop()

    def close(self) -> None:
        """Send what is queued and end for good, the thread included. May be called twice.

        In a forked child it does nothing: the connection is the parent's.
        """
        if self._portal.is_forked:
            return
        if not self._inner.is_closed:
            self._portal.run(self._inner.close())
        self._portal.stop()


def _each(portal: Portal, events: AsyncIterator[Event]) -> Iterator[Event]:
    try:
        while (event := portal.run(_next(events))) is not None:
            yield event
    except ConnectionClosedError:
        return  # the loop ended with the connection


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)
