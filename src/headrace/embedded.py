"""The broker together with its client in one process: ``headrace.Broker``.

The one place that knows both. Client and broker meet in the frames of ``wire.direct`` and in nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from .broker.server import Broker as ServerBroker
from .client.connection import Connecting, settings_from
from .client.inprocess import InProcessSession
from .client.options import ConnectOptions, Options

__all__ = ["Broker"]


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

        The connection is the usual one, with its guarantees: an acknowledged publish is as durable,
        permissions hold (log in by ``user`` and ``password``, or whatever the broker asks for), and who
        sends faster than the broker works has to wait. Options that concern sockets, servers and TLS
        have no meaning here. It is used in the broker's own event loop, and closed for good when the
        broker stops; from another thread or process connect to ``client_url``.

        Raises (when awaited):
            ConfigurationError: an option is wrong, or this is not the broker's event loop.
            AuthorizationError: the credentials were refused.
            ConnectionClosedError: the broker is not running.
        """
        settings = settings_from(options, keywords)
        return Connecting(partial(InProcessSession, self.accept, settings))
