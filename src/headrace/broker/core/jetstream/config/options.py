"""What an operator may choose about JetStream, and the refusal of a request, wherever that is noticed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import Any, Final, Literal

import msgspec

from .....api.errors import Errors, ErrorSpec
from .....limits import CONSUMERS_PER_STREAM_MAX, STREAMS_MAX
from ...options import COMPATIBLE_API_LEVEL, COMPATIBLE_VERSION, AssetLimits, JetStreamLimits

FORBIDDEN_IN_NAMES: Final = frozenset(".*>/\\ \t\r\n\f")
"""Characters that no name of a stream or consumer has: it is a token of a subject, and a directory."""


def say_nothing(text: str) -> None:
    """Nobody wants to know."""


def no_time_zone(name: str) -> tzinfo | None:
    """Knows none but UTC."""
    return UTC if name == "UTC" else None


class JetStreamOptions(msgspec.Struct, frozen=True):
    """Names shown to clients, and limits; a limit of −1 is none.

    ``version`` and ``api_level`` are what clients read in ``config.metadata`` (``_nats.ver``,
    ``_nats.level``); a request that needs a higher level is refused with 10185.
    """

    server_name: str = "headrace"
    account: str = "$G"
    domain: str = ""
    """Of the server, "" for none; acknowledgements and the account's information say it."""
    limits: JetStreamLimits = msgspec.field(default_factory=JetStreamLimits)
    tiers: tuple[tuple[str, JetStreamLimits], ...] = ()
    """Where the account's limits are those of tiers: all of them; ``limits`` are those of ``R1``."""
    version: str = COMPATIBLE_VERSION
    api_level: int = COMPATIBLE_API_LEVEL
    max_streams: int = STREAMS_MAX
    max_consumers_per_stream: int = CONSUMERS_PER_STREAM_MAX
    assets: AssetLimits = msgspec.field(default_factory=AssetLimits)
    """What each stream, consumer and batch may be, by the server; ``limits`` are the account's."""
    max_storage_bytes: int = -1
    max_memory_bytes: int = -1
    time_zone: Callable[[str], tzinfo | None] = no_time_zone
    """The time zone of a name, as of ``Europe/Berlin``, for schedules; None for one nobody knows."""
    warn: Callable[[str], None] = say_nothing
    """Is told, in a sentence, what whoever operates the server should know."""
    pin_handover: Literal["drain", "immediate"] = "drain"
    """When the next client is pinned: once the one before has finished what it has in hand (the
    specification of priority groups), or with the next message (nats-server)."""

    @property
    def admits_streams(self) -> bool:
        """Whether there is any limit that applies to streams of one node."""
        return not self.tiers or any(name == "R1" for name, _ in self.tiers)


class Refused(Exception):  # noqa: N818 - it is an answer, not a failure of ours
    """A request is refused; ``error`` is the answer."""

    def __init__(self, error: ErrorSpec, **values: Any) -> None:
        self.error = error.with_(**values) if values else error
        super().__init__(self.error.description)


def invalid(text: str) -> Refused:
    """The refusal of a stream's configuration, in the public server's words."""
    return Refused(Errors.STREAM_INVALID_CONFIG, err=text)
