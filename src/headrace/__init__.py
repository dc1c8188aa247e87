"""Headrace: pull-based streaming for Python and Spark.

The package imports nothing heavy: names below are loaded on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .client.connection import Connection, connect
    from .client.message import Message
    from .client.options import Options
    from .client.subscription import Subscription
    from .errors import (
        AuthorizationError,
        BufferFullError,
        ConfigurationError,
        ConnectFailedError,
        ConnectionClosedError,
        DisconnectedError,
        HeadraceError,
        HeartbeatMissedError,
        InvalidSubjectError,
        JetStreamApiError,
        LimitExceededError,
        NoRespondersError,
        ProtocolError,
        PullError,
        ServerError,
        SlowConsumerError,
    )
    from .errors import TimeoutError_ as TimeoutError

__all__ = [
    "AuthorizationError",
    "BufferFullError",
    "ConfigurationError",
    "ConnectFailedError",
    "Connection",
    "ConnectionClosedError",
    "DisconnectedError",
    "HeadraceError",
    "HeartbeatMissedError",
    "InvalidSubjectError",
    "JetStreamApiError",
    "LimitExceededError",
    "Message",
    "NoRespondersError",
    "Options",
    "ProtocolError",
    "PullError",
    "ServerError",
    "SlowConsumerError",
    "Subscription",
    "TimeoutError",
    "__version__",
    "connect",
]

_HOMES = {
    "client.connection": ("Connection", "connect"),
    "client.message": ("Message",),
    "client.options": ("Options",),
    "client.subscription": ("Subscription",),
}
_LAZY = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "TimeoutError":
        from .errors import TimeoutError_

        value: Any = TimeoutError_
    elif name in _LAZY:
        value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    elif name in __all__:
        value = getattr(importlib.import_module(".errors", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
