"""Rights of an API key: scopes and channels. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from . import limits
from .errors import JobsError, bad_request
from .matching.filters import fits

__all__ = ["EVERY_CHANNEL", "SCOPES", "Key", "check_scopes"]

SCOPES: Final = ("publish", "consume", "operate", "admin")
"""Scopes of a key; ``admin`` is all of them."""

EVERY_CHANNEL: Final = "*"
_PATTERN: Final = re.compile(rf"[A-Za-z0-9._*-]{{1,{limits.ID_CHARS_MAX}}}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A stored key."""

    seq: int
    key_id: str
    name: str
    scopes: tuple[str, ...]
    channels: tuple[str, ...]

    def has_scope(self, wanted: Sequence[str]) -> bool:
        """Whether it has one of these."""
        return "admin" in self.scopes or any(scope in self.scopes for scope in wanted)

    def covers(self, channel_id: str | None) -> bool:
        """Whether it is for this channel; None: for what belongs to no channel, so for every one."""
        if channel_id is None:
            return EVERY_CHANNEL in self.channels
        return any(fits(pattern, channel_id) for pattern in self.channels)

    def check(self, wanted: Sequence[str], channel_id: str | None) -> None:
        """Return if it may; otherwise 403, with what it lacks."""
        if not self.has_scope(wanted):
            needed = " or ".join(wanted) if "admin" in wanted else " or ".join((*wanted, "admin"))
            raise JobsError(
                403,
                "scope_missing",
                f"the key {self.key_id} has {', '.join(self.scopes)}; this needs {needed}",
                "Authorization",
            )
        if not self.covers(channel_id):
            what = "this needs one for every channel" if channel_id is None else f"not {channel_id}"
            raise JobsError(
                403,
                "channel_refused",
                f"the key {self.key_id} is for the channels {', '.join(self.channels)}; {what}",
                "Authorization",
            )


def check_scopes(scopes: Sequence[str], channels: Sequence[str]) -> None:
    """Reject scopes and patterns of channels that no key can have: 400."""
    if not scopes or set(scopes) - set(SCOPES):
        raise bad_request(
            "unknown_scope", f"one or more of {', '.join(SCOPES)} are accepted", "scopes"
        )
    if not 1 <= len(channels) <= limits.KEY_CHANNELS_MAX:
        raise bad_request(
            "invalid_channels",
            f"1 to {limits.KEY_CHANNELS_MAX} names of channels are accepted; `*` is any text",
            "channels",
        )
    for pattern in channels:
        if not _PATTERN.match(pattern):
            raise bad_request(
                "invalid_channels",
                f"{pattern[:80]!r} is no name of a channel, in which `*` is any text",
                "channels",
            )
