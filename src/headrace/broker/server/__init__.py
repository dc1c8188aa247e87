"""The asyncio shell around the core: sockets, TLS, monitoring, life and death of a broker.

Begin with ``broker`` (start, reload, stop). ``connections`` has the sockets and the ticks, ``config`` the
settings, ``monitor`` the HTTP endpoints, ``storage`` and ``scrubbing`` the store on disk, ``passwords``
and ``keys`` what the extras check, ``machine`` what the machine offers.
"""

from __future__ import annotations

from ..core.auth.authentication import User
from .broker import Broker
from .config.options import BrokerOptions, TlsOptions

__all__ = ["Broker", "BrokerOptions", "TlsOptions", "User"]
