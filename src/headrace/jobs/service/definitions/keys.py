"""API keys: made, read, revoked. Only a salted hash of a key is stored."""

from __future__ import annotations

from collections.abc import Sequence

from ... import ids, limits
from ...access import Key, check_scopes
from ...errors import JobsError, not_found
from ...store import Row, Tx

__all__ = ["insert_key", "key_of", "note_used", "revoke_key"]


def insert_key(
    tx: Tx,
    key_id: str,
    key: str,
    *,
    name: str,
    scopes: Sequence[str],
    channels: Sequence[str],
    valid_s: float | None,
    now: int,
) -> Row:
    """Store a new key. 400 for what no key can have, 409 for one too many."""
    ids.check_text(name, "name", limits.NAME_CHARS_MAX)
    check_scopes(scopes, channels)
    counted = tx.one("count_keys")
    if counted is not None and counted["n"] >= limits.KEYS_MAX:
        raise JobsError(
            409,
            "too_many_keys",
            f"there are at most {limits.KEYS_MAX} keys; those that are over are removed after 90 days",
            "name",
        )
    row = tx.one(
        "insert_key",
        key_id=key_id,
        name=name,
        key_hash=ids.hash_token(key),
        scopes=" ".join(dict.fromkeys(scopes)),
        channels=" ".join(dict.fromkeys(channels)),
        now=now,
        expires_us=None if valid_s is None else now + round(valid_s * 1e6),
    )
    if row is None:
        raise AssertionError("an insert returns its row")
    return row


def key_of(row: Row) -> Key:
    """A row of the table."""
    return Key(
        seq=row["seq"],
        key_id=row["key_id"],
        name=row["name"],
        scopes=tuple(row["scopes"].split(" ")),
        channels=tuple(row["channels"].split(" ")),
    )


def revoke_key(tx: Tx, key_id: str, now: int) -> None:
    """End a key; one that was ended before stays so. 404 if there is none."""
    row = tx.one("get_key", key_id=key_id)
    if row is None:
        raise not_found("key", "keyId")
    tx.run("revoke_key", seq=row["seq"], now=now)


def note_used(tx: Tx, seqs: Sequence[int], now: int) -> None:
    """Note that these keys were used lately."""
    for seq in seqs:
        tx.run("note_key_used", seq=seq, now=now)
