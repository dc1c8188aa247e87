"""Tools for tests of programs that use Headrace.

``plugin`` is a pytest plugin, installed with Headrace: a broker, connections and pipelines as fixtures.
``published`` and ``handled`` record what a program does, to be compared with what it should do
(``recorded``); ``made_message`` and ``made_group_message`` are messages to call a handler with (``made``).
``Link`` is a proxy that makes a server far (``link``).
A broker for tests without an event loop of their own is ``headrace.sync.Broker``. The clock that you move
yourself is ``headrace.clock.ManualClock``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .link import Link
    from .made import MadeMessage, made_group_message, made_message
    from .recorded import Handled, Published, Recorded, Seen, handled, published

__all__ = [
    "Handled",
    "Link",
    "MadeMessage",
    "Published",
    "Recorded",
    "Seen",
    "handled",
    "made_group_message",
    "made_message",
    "published",
]


def __getattr__(name: str) -> Any:
    """The rooms are imported when first asked for: the plugin is loaded in every session of pytest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "link" if name == "Link" else "made" if "made" in name.lower() else "recorded"
    return getattr(importlib.import_module(f"{__name__}.{room}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
