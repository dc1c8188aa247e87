"""The audit log: who did what to which object, from where, with which result. No payloads, no secrets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...clock import Clock
from .. import limits
from ..store import Tx

__all__ = ["Entry", "PerMinute", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
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

    def of(self, result: str) -> Entry:
        """The same with another result."""
        return replace(self, result=result)


def note(tx: Tx, entry: Entry, now: int) -> None:
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


class PerMinute:
    """Lets so many pass in each minute."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._begun_ns = clock.monotonic_ns()
        self._count = 0

    def take(self) -> bool:
        """Whether another one may pass."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._begun_ns >= 60 * 10**9:
            self._begun_ns, self._count = now_ns, 0
        self._count += 1
        return self._count <= self._most
