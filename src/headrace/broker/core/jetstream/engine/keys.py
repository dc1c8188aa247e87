"""The keys of the metadata journal: what they hold, and then the stream's name or ``stream/consumer``."""

from __future__ import annotations

from typing import Final

__all__ = ["CONSUMER", "STATE", "STREAM"]

STREAM: Final = "stream/"
CONSUMER: Final = "consumer/"
STATE: Final = "state/"
