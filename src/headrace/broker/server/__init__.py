"""The asyncio shell around the core: sockets, TLS, monitoring, life and death of a broker.

Rooms and files, each knowing only those below it:

``broker``
    start, reload, stop; begin here
``monitor``, ``storage``
    the HTTP endpoints, and the store on disk with its scrub
``connections``
    the sockets, and the ticks of the hub
``config``
    the settings, and how files say them
``moved_clock``
    the clock that a test moves, and what the log says of the time of day
``tls``, ``passwords``, ``keys``, ``machine``
    TLS contexts and handshakes, what the extras check, what the machine offers
"""

from __future__ import annotations

from ..core.auth.authentication import User
from .broker import Broker
from .config.options import BrokerOptions, TlsOptions

__all__ = ["Broker", "BrokerOptions", "TlsOptions", "User"]
