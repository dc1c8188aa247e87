"""Notes of where the jobs went that retention removed: as ranges, told to those who ask for one of them."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import JobsError, not_found
from ..models import rfc3339
from ..store import Tx

__all__ = ["missing", "note_removed"]


def missing(tx: Tx, seq: int) -> JobsError:
    """Explain that a job is not there: 410 and where it went, if retention removed it; else 404."""
    row = tx.one("removed_range", seq=seq)
    if row is None or row["last_seq"] < seq:
        return not_found("job", "jobId")
    where = (
        "no archive has it" if row["folder"] is None else f"the archive has it in {row['folder']}"
    )
    day = rfc3339(row["removed_us"])[:10]
    return JobsError(
        410, "removed", f"retention removed the job, on {day} at the latest; {where}", "jobId"
    )


def note_removed(tx: Tx, folders: Mapping[int, str | None], now: int) -> None:
    """Note removed jobs as ranges; one that continues the range before it makes that longer."""
    runs: list[tuple[int, int, str | None]] = []
    for seq, folder in sorted(folders.items()):
        if runs and runs[-1][1:] == (seq - 1, folder):
            runs[-1] = (runs[-1][0], seq, folder)
        else:
            runs.append((seq, seq, folder))
    for first, last, folder in runs:
        before = tx.one("removed_range", seq=first)
        if before is not None and (before["last_seq"], before["folder"]) == (first - 1, folder):
            tx.run("extend_removed_range", first=before["first_seq"], last=last, now=now)
        else:
            tx.run("insert_removed_range", first=first, last=last, now=now, folder=folder)
