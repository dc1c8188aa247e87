"""``connect`` and ``Connection`` for threads. The loop's thread begins and ends with its connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self, Unpack

from ...blocking import anywhere, blocking, calling, iterate, returning, wrapping
from ...errors import ConnectionClosedError
from ...handling.callbacks import check_plain
from ..connection import DEFAULT_SERVER, Connecting
from ..connection import Connection as AioConnection
from ..connection import connect as aio_connect
from ..events import Event
from ..health import ConnectionState
from ..metrics import ConnectionStats
from ..net.handshake import ServerInfo
from ..net.options import Options
from ..subscription import PENDING_BYTES_DEFAULT, PENDING_MESSAGES_DEFAULT
from .jetstream import JetStream
from .loop_thread import Facade, LoopThread, caller_here
from .messages import Message
from .services import Service
from .subscription import Subscription

if TYPE_CHECKING:
    from ..net.connect_options import ConnectOptions


def connect(
    servers: str | Sequence[str] = DEFAULT_SERVER,
    *,
    options: Options | None = None,
    **keywords: Unpack[ConnectOptions],
) -> Connection:
    """Connect to one of ``servers``: ``connection = connect(…)``, or ``with connect(…)``.

    The connection lives on a background thread of its own, which ends with ``close``. ``on_event`` is
    called on the background thread, where it must not make blocking calls.

    Args:
        servers: a URL ``nats://[user:password@|token@]host[:port]`` or ``tls://…``, several separated
            by commas, or a sequence.
        options: prepared settings; keywords are the fields of ``Options`` and make new ones.

    Raises:
        ConfigurationError: a URL or an option is wrong.
        AuthorizationError: the credentials were refused.
        ConnectFailedError: no server could be reached; the text says why, for each.
    """
    return open_on(aio_connect(servers, options=options, **keywords), LoopThread())


def open_on(connecting: Connecting, thread: LoopThread) -> Connection:
    """The connection that ``connect`` was called for, on the loop of ``thread``, which it ends."""
    try:
        inner = thread.run(connecting._connect())
    except BaseException:
        thread.stop()
        raise
    thread.on_error = inner._session.report
    connection = Connection(thread, inner)
    thread.close_at_exit = connection.close
    return connection


class Connection(Facade):
    """A connection to a NATS server or a Headrace broker; made by ``connect``.

    What sends returns once the bytes are queued; they leave soon after. A lost connection is restored
    in the background (see ``Options``): subscriptions are renewed, publishes wait in a bounded buffer.
    All methods may be called from any thread of the process that made it.
    """

    __slots__ = ()
    _inner: AioConnection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Send what is queued and close."""
        self.close()

    # State

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment. A server that answers neither a call nor then a
        ping (option ``ping_timeout``) counts as gone."""
        return self._inner.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        return self._inner.is_closed

    @property
    def state(self) -> ConnectionState:
        """``connected``, ``disconnected`` and being restored, ``draining``, ``closed``; before the first
        connection ``connecting``."""
        return self._inner.state

    health = anywhere(AioConnection.health)

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
        """What the connection has done so far; see ``headrace.client.metrics`` for scrapers."""
        # Read on the loop while there is one, so that the figures belong together.
        return self._inner.stats() if self.is_closed else self._thread.call(self._inner.stats)

    def events(self) -> Iterator[Event]:
        """What happens to the connection from now on, until it is closed."""
        return self._until_closed(self._thread.call(self._inner.events))  # from this call on

    def _until_closed(self, events: AsyncIterator[Event]) -> Iterator[Event]:
        try:
            yield from iterate(self._thread, events)
        except ConnectionClosedError:
            return  # the loop ended with the connection

    # Publishing

    publish = blocking(AioConnection.publish)
    publish_nowait = calling(AioConnection.publish_nowait)
    request = returning(Message._of, AioConnection.request)

    # Subscribing

    def subscribe(
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
            callback: called with each message: a plain function, on a thread of the subscription's own, one
                message after the other. Without it, iterate the subscription.
            pending_messages, pending_bytes: how much may wait to be taken; see ``Subscription``.
            answer_errors: whether a callback that raises answers whoever asked, with ServiceError; None:
                if there is a queue, or ``subject`` has no wildcards. Give False if the callback only listens.
        """
        check_plain("callback", callback)
        making = self._inner.subscribe(
            subject,
            queue=queue,
            pending_messages=pending_messages,
            pending_bytes=pending_bytes,
            answer_errors=answer_errors,
        )
        return Subscription(self._thread, self._thread.run(making))._start(callback)

    new_inbox = calling(AioConnection.new_inbox)
    jetstream = wrapping(JetStream, anywhere(AioConnection.jetstream))
    add_service = returning(Service, AioConnection.add_service)

    # Beginning and end

    flush = blocking(AioConnection.flush)

    def drain(self) -> None:
        """Stop receiving, let everything received be taken, send what is queued, then close.

        Whoever takes may publish meanwhile. Running consumes are drained as well. Gives up waiting for
        the takers after the option ``drain_timeout``, and reports that as an event. Without a connection
        it waits for no other one: what could not be sent is an event, too, with an UnsentError.
        """
        try:
            self._thread.run(self._inner._drain(caller_here()))
        finally:
            self._thread.stop()

    def close(self) -> None:
        """Send what is queued and end for good. Whoever waits gets ConnectionClosedError.

        The background thread ends, too. May be called twice. In a forked child it does nothing: the
        connection is the parent's.

        No callback begins any more. Messages of consumers that nobody took go back at once, to be delivered
        again. One in hand may still be handled and acknowledged, for ``close_timeout`` seconds; it is not
        waited for where its handler is what calls. Without a connection, or where the server takes nothing,
        what could not be sent is an event, with an UnsentError.
        """
        if self._thread.is_forked:
            return
        if not self.is_closed:
            self._thread.run(self._inner._close(caller_here()))
        self._thread.stop()
