"""The API keys that one process has lately seen: read again each second, with a note when each was used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...clock import Clock
from .. import ids, limits
from ..access import Key
from ..errors import JobsError
from ..service.definitions import keys
from ..store import Database, Tx

__all__ = ["Keyring"]

_SEEN_US: Final = round(limits.KEY_SEEN_S * 1e6)


@dataclass(frozen=True, slots=True)
class _Seen:
    key: Key
    key_hash: str
    until_ns: int


class Keyring:
    """A key that is revoked ends in this process at once (``forget``), in the others within a second."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._used: set[int] = set()

    async def find(self, given: str) -> Key:
        """The key that was given; 401 if it is unknown, revoked or expired."""
        key_id = ids.key_id_of(given)
        if not key_id:
            raise _unknown()
        seen = self._seen.get(key_id)
        if seen is None or self._clock.monotonic_ns() >= seen.until_ns:
            seen = await self._read(key_id)
        if not ids.token_matches(seen.key_hash, given):
            raise _unknown()
        self._used.add(seen.key.seq)
        return seen.key

    async def _read(self, key_id: str) -> _Seen:
        def read(tx: Tx) -> _Seen | None:
            row = tx.one("get_key", key_id=key_id)
            if row is None or row["revoked_us"] is not None:
                return None
            left_us = _SEEN_US if row["expires_us"] is None else row["expires_us"] - tx.now_us()
            until_ns = self._clock.monotonic_ns() + min(left_us, _SEEN_US) * 1000
            return _Seen(keys.key_of(row), row["key_hash"], until_ns) if left_us > 0 else None

        self._seen.pop(key_id, None)
        seen = await self._database.read(read)
        if seen is None:
            raise _unknown()
        if len(self._seen) >= limits.KEYS_SEEN_MAX:
            self._seen.clear()
        self._seen[key_id] = seen
        return seen

    def forget(self, key_id: str) -> None:
        """Note that a key has changed."""
        self._seen.pop(key_id, None)

    async def note_used(self) -> None:
        """Store when the keys were used that were used since the last time."""
        used, self._used = self._used, set()
        if not used:
            return
        try:
            await self._database.write(lambda tx: keys.note_used(tx, sorted(used), tx.now_us()))
        except BaseException:
            self._used |= used
            raise


def _unknown() -> JobsError:
    return JobsError(
        401, "unknown_key", "the key is not known, or was revoked, or has expired", "Authorization"
    )
