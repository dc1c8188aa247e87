"""The broker: brain (``core``), durability (``store``) and asyncio shell (``server``).

``headrace.broker.Broker`` is loaded on first use, because the rooms below are imported on their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .server import Broker, BrokerOptions, TlsOptions

__all__ = ["Broker", "BrokerOptions", "TlsOptions"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import server

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
