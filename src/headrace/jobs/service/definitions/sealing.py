"""Secrets of consumers: sealed for their row and column, with the first key before a process serves."""

from __future__ import annotations

from collections import Counter

from ... import limits
from ...errors import JobsError
from ...store import Row, Tx
from ...vault import foreign, sealed_with

__all__ = ["check_keys", "open_sealed", "seal", "seal_some"]

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
        try:
            sealed = {
                name: seal(tx, row["seq"], name, open_sealed(tx, row["seq"], name, row[name]))
                for name in _SECRET
            }
        except JobsError:
            continue  # it was tampered with: its consumer alone is refused, whenever it is used
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


def seal(tx: Tx, seq: int, column: str, text: str | None) -> str | None:
    """A secret of the consumer ``seq`` as it is stored in ``column``, where alone it can be opened."""
    return None if text is None else tx.vault.seal(text, _place(seq, column))


def open_sealed(tx: Tx, seq: int, column: str, stored: str | None) -> str | None:
    """Open what is stored in this column of the consumer ``seq``; 503 if it is not what was stored there."""
    return None if stored is None else tx.vault.open(stored, _place(seq, column))


def _place(seq: int, column: str) -> str:
    return f"consumer {seq} {column}"


def _texts(row: Row) -> list[str]:
    return [row[name] for name in _SECRET if row[name] is not None]
