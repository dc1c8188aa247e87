"""Before a process serves: all that is secret can be opened, and is sealed with the first key."""

from __future__ import annotations

from collections import Counter

from ... import limits
from ...store import Row, Tx
from ...vault import foreign, sealed_with

__all__ = ["check_keys", "seal_some"]

_SECRET = ("token", "previous_token", "secrets")


def check_keys(tx: Tx) -> None:
    """Raise ConfigurationError if something is sealed with a key that is not here. Reads only."""
    counted: Counter[str] = Counter()
    after: int | None = 0
    while after is not None:
        rows = tx.all("page_secrets", after=after, n=limits.SWEEP_ROWS)
        for row in rows:
            names = {sealed_with(text) for text in _texts(row)} - {None}
            counted.update(name for name in names if name is not None)
        after = rows[-1]["seq"] if len(rows) == limits.SWEEP_ROWS else None
    error = foreign(tx.vault, counted)
    if error is not None:
        raise error


def seal_some(tx: Tx, after: int) -> tuple[int, int | None]:
    """Seal the secrets of some consumers with the first key. Returns how many, and where to go on."""
    rows = tx.all("page_secrets", after=after, n=limits.SWEEP_ROWS)
    changed = 0
    for row in rows:
        if all(tx.vault.is_current(text) for text in _texts(row)):
            continue
        sealed = {
            name: None if row[name] is None else tx.vault.seal(tx.vault.open(row[name]))
            for name in _SECRET
        }
        # Whoever changed it meanwhile has sealed it by that.
        changed += tx.run(
            "reseal_consumer",
            seq=row["seq"],
            was_token=row["token"],
            was_previous=row["previous_token"] or "",
            was_secrets=row["secrets"],
            **sealed,
        )
    return changed, rows[-1]["seq"] if len(rows) == limits.SWEEP_ROWS else None


def _texts(row: Row) -> list[str]:
    return [row[name] for name in _SECRET if row[name] is not None]
