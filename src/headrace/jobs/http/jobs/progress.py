"""How far a job is, as its worker says: checked, kept as one small document, and shown."""

from __future__ import annotations

import msgspec

from ... import limits
from ...errors import bad_request
from ...models import rfc3339
from ...states import State
from ...store import Row
from .. import shapes

__all__ = ["check", "progress_of", "stored"]


class _Stored(msgspec.Struct, frozen=True):
    done: float | None
    note: str
    at_us: int


def check(told: shapes.ProgressBody) -> None:
    """400 for a share that is none, for a note that is too long, and for progress that says nothing."""
    if told.done is not None and not 0 <= told.done <= 1:
        raise bad_request("invalid_number", "a share of the work is 0 to 1", "jobs.progress.done")
    if len(told.note) > limits.PROGRESS_NOTE_CHARS_MAX:
        most = limits.PROGRESS_NOTE_CHARS_MAX
        raise bad_request(
            "invalid_text", f"at most {most} characters are accepted", "jobs.progress.note"
        )
    if told.done is None and not told.note:
        raise bad_request("invalid_progress", "give `done`, `note`, or both", "jobs.progress")


def stored(told: shapes.ProgressBody, now: int) -> str:
    """As it is stored with the job."""
    return msgspec.json.encode(_Stored(told.done, told.note, now)).decode()


def progress_of(row: Row) -> shapes.Progress | None:
    """What a job's worker said last. That of an attempt before is not that of the one that runs."""
    if row["progress"] is None:
        return None
    told = msgspec.json.decode(row["progress"], type=_Stored)
    if row["state"] == State.INFLIGHT and told.at_us < (row["lease_started_us"] or 0):
        return None
    return shapes.Progress(told.done, told.note, rfc3339(told.at_us))
