"""The asyncio shell around the core: sockets, TLS, monitoring, life and death of a broker."""

from __future__ import annotations

from ..core.auth.authentication import User
from .broker import Broker
from .options import BrokerOptions, TlsOptions

__all__ = ["Broker", "BrokerOptions", "TlsOptions", "User"]
