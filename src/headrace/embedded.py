"""The broker together with its client in one process: ``headrace.Broker``, ``headrace.sync.Broker``.

Only this module knows both. Client and broker exchange only the frames of ``wire.inprocess``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

from .broker.server import Broker as ServerBroker
from .broker.server import BrokerOptions
from .client.blocking.connection import Connection as BlockingConnection
from .client.blocking.connection import open_on
from .client.blocking.loop_thread import LoopThread, SharedLoopThread
from .client.connection import Connecting, settings_from
from .client.net.inprocess import inprocess_session
from .client.net.options import Options
from .errors import ConfigurationError, ConnectionClosedError

if TYPE_CHECKING:
    from .broker.server.config.keywords import BrokerSettings
    from .client.net.connect_options import ConnectOptions
    from .clock import Clock

__all__ = ["BlockingBroker", "Broker"]


class Broker(ServerBroker):
    """A message broker inside this event loop, with connections to it that need no socket.

    ::

        async with Broker(store_dir="data") as broker, broker.connect() as connection:
            await connection.jetstream().publish("orders", b"…")

    Settings are those of ``BrokerOptions``, by keyword or ready-made as ``options``.
    """

    def connect(
        self, *, options: Options | None = None, **keywords: Unpack[ConnectOptions]
    ) -> Connecting:
        """Connect without a socket: ``connection = await broker.connect(…)``, or ``async with …``.

        The connection is an ordinary one with the usual guarantees: an acknowledged publish is as durable,
        permissions apply (log in with ``user`` and ``password``, or whatever the broker requires), and a
        client that sends faster than the broker works has to wait. Options about sockets, servers and TLS
        have no effect. Use the connection in the broker's own event loop. It closes for good when the
        broker stops. From another thread or process connect to ``client_url``.

        Raises (when awaited):
            ConfigurationError: an option is wrong, or this is not the broker's event loop.
            AuthorizationError: the broker rejected the credentials.
            ConnectionClosedError: the broker is not running.
        """
        settings = settings_from(options, keywords)
        return Connecting(partial(inprocess_session, self.accept, settings))


class BlockingBroker:
    """The broker on a background thread, for programs and notebooks without an event loop.

    ::

        with sync.Broker(store_dir="data") as broker, broker.connect() as connection:
            connection.jetstream().publish("orders", b"…")

    Takes the settings of ``headrace.Broker``, and its ``clock``: when a thread has moved it, what is due by
    then is done. All methods may be called from any thread.

    Raises:
        ConfigurationError, StoreError: as ``headrace.Broker``.
    """

    def __init__(
        self,
        options: BrokerOptions | None = None,
        *,
        clock: Clock | None = None,
        **settings: Unpack[BrokerSettings],
    ) -> None:
        self._broker = Broker(options, clock=clock, **settings)
        self._thread: LoopThread | None = None

    def __repr__(self) -> str:
        return repr(self._broker)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port clients connect to; 0 before the start."""
        return self._broker.port

    @property
    def client_url(self) -> str:
        """The URL for other processes to connect to, without credentials."""
        return self._broker.client_url

    @property
    def monitor_url(self) -> str | None:
        """The URL of the monitoring server, if it is enabled."""
        return self._broker.monitor_url

    @property
    def websocket_url(self) -> str | None:
        """The URL of the WebSocket listener, if it is enabled."""
        return self._broker.websocket_url

    def announce_stop(self) -> None:
        """Tell the clients to find another server. They are served until ``stop``."""
        if self._thread is not None:
            self._thread.call(self._broker.announce_stop)

    def reload(self, options: BrokerOptions) -> list[str]:
        """Apply these settings as far as possible while serving, as ``headrace.Broker.reload`` does.

        Returns the names of changed settings that need a restart. Raises ConfigurationError, and then
        nothing has changed.
        """
        if self._thread is None:
            raise ConfigurationError("the broker is not started")
        return self._thread.call(self._broker.reload, options)

    def start(self) -> None:
        """Recover the store, then listen. A failed start leaves nothing behind."""
        self._thread = LoopThread()
        try:
            self._thread.run(self._broker.start())
        except BaseException:
            self._thread.stop()
            raise

    def stop(self) -> None:
        """Stop listening, write everything to disk, close every connection. May be called again."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            try:
                thread.run(self._broker.stop())
            finally:
                thread.stop()

    def connect(
        self, *, options: Options | None = None, **keywords: Unpack[ConnectOptions]
    ) -> BlockingConnection:
        """Connect without a socket; arguments and errors are those of ``headrace.Broker.connect``.

        The broker's thread serves the connection. Call its methods from any other thread.
        """
        if self._thread is None:
            raise ConnectionClosedError("the broker is not running")
        connecting = self._broker.connect(options=options, **keywords)
        return open_on(connecting, SharedLoopThread(self._thread))
