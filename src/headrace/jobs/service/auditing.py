"""The audit log: who did what to which object, from where, with which result; and events, which people should
know of. No payloads, no secrets.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPv6Network, ip_address

from ...clock import Clock
from .. import limits
from ..store import Tx

__all__ = ["AuditNote", "Guesses", "PerMinute", "note", "note_event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditNote:
    """One line. ``action`` is method and route, ``object`` the path, ``result`` ``done`` or the refusal."""

    who: str
    action: str
    object: str
    key_id: str | None = None
    channel_id: str | None = None
    address: str = ""
    request_id: str = ""
    result: str = "done"
    detail: str | None = None

    def of(self, result: str) -> AuditNote:
        """The entry with another result."""
        return replace(self, result=result)


def note(tx: Tx, entry: AuditNote, now: int) -> None:
    """Write a line, in the transaction of what it tells."""
    most = limits.AUDIT_TEXT_CHARS_MAX
    tx.run(
        "insert_audit",
        now=now,
        who=entry.who[:most],
        key_id=entry.key_id,
        action=entry.action,
        object=entry.object[:most],
        channel_id=None if entry.channel_id is None else entry.channel_id[: limits.ID_CHARS_MAX],
        address=entry.address,
        request_id=entry.request_id,
        result=entry.result[:most],
        detail=None if entry.detail is None else entry.detail[:most],
    )


def note_event(
    tx: Tx,
    kind: str,
    now: int,
    detail: str,
    channel_id: str | None = None,
    consumer_id: str | None = None,
) -> None:
    """Write an event, in the transaction of what it tells."""
    tx.run(
        "insert_event",
        now=now,
        kind=kind,
        channel_id=channel_id,
        consumer_id=consumer_id,
        detail=detail,
    )


class PerMinute:
    """Lets so many pass in each minute."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._begun_ns = clock.monotonic_ns()
        self._count = 0

    def take(self) -> bool:
        """Whether another one may pass."""
        if self.left_s() == 0:
            self._begun_ns, self._count = self._clock.monotonic_ns(), 0
        self._count += 1
        return self._count <= self._most

    def left_s(self) -> float:
        """Seconds that the minute still lasts; 0: it is over."""
        return max(0, self._begun_ns + 60 * 10**9 - self._clock.monotonic_ns()) / 1e9

    @property
    def is_used_up(self) -> bool:
        """Whether as many as may have passed in this minute."""
        return self._count >= self._most and self.left_s() > 0


class Guesses:
    """Wrong tokens by the address that they came from: after so many in a minute none of it is looked at
    until the minute is over, but for those that were right before.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong: dict[str, PerMinute] = {}
        self._right: set[int] = set()

    def wait_s(self, address: str, asked: Hashable) -> float:
        """Seconds until what the address ``asked``, with its tokens, is looked at; 0: it is."""
        wrong = self._wrong.get(_network(address)) if self._wrong else None
        if wrong is None or not wrong.is_used_up or hash(asked) in self._right:
            return 0.0
        return wrong.left_s()

    def note_wrong(self, address: str) -> None:
        """A token from there was wrong."""
        network = _network(address)
        if network not in self._wrong:
            if len(self._wrong) >= limits.WRONG_ADDRESSES_MAX:
                self._wrong.clear()
            self._wrong[network] = PerMinute(limits.WRONG_TOKENS_PER_MINUTE, self._clock)
        self._wrong[network].take()

    def note_right(self, asked: Hashable) -> None:
        """The tokens were right for what was asked."""
        if len(self._right) >= limits.RIGHT_TOKENS_MAX:
            self._right.clear()
        self._right.add(hash(asked))


@lru_cache(1024)
def _network(address: str) -> str:
    """Whose address it is: with IPv6 one machine has all of a network.

    What a proxy on this machine names (``X-Forwarded-For``) may be any text; all that is no address counts
    as one, or each guess would bring a text of its own.
    """
    try:
        named = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if named.version == 4:
        return str(named)
    return str(named.ipv4_mapped or IPv6Network((named, 64), strict=False))
