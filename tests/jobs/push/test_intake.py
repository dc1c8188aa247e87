"""What a lane of a channel in a stream takes: nothing is kept from being called by a database in trouble."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.jobs.models import ConsumerSettings
from headrace.jobs.push.intake import StreamIntake
from headrace.jobs.service.push.results import PushNotes, Written
from headrace.jobs.streams.source import _job
from headrace.jobs.streams.waiting import Entry


class Database:
    """Has jobs of the key ``busy``; writing fails as long as it is ``broken``."""

    def __init__(self) -> None:
        self.broken = True

    async def read(self, what: Any) -> frozenset[str]:
        return frozenset({"busy"})

    async def write(self, what: Any) -> set[int]:
        if self.broken:
            raise OSError("the database is away")
        return set()  # the key has no unfinished jobs by now


def message(seq: int, key: str) -> Any:
    place = SimpleNamespace(stream_seq=seq, timestamp_ns=seq)
    headers = {"X-Broker-Ordering-Key": key} if key else {}
    return SimpleNamespace(
        metadata=place, headers=headers, payload=b"%d" % seq, subject="s", nak=lambda delay: None
    )


async def nothing_claimed(claim: Any) -> tuple[Any, list[Any]]:
    return None, []


async def test_what_was_taken_is_called_though_the_database_failed_in_between() -> None:
    consumer: Any = SimpleNamespace(
        seq=1, settings=ConsumerSettings(), paused=False, disabled_us=None, stream=None
    )
    database = Database()
    runtime: Any = SimpleNamespace(
        database=database,
        claim=nothing_claimed,
        streams=None,
        clock=SimpleNamespace(monotonic_ns=lambda: 0),
    )
    intake = StreamIntake(runtime, consumer, "push", lambda tx: None, lambda: True)
    for seq, key in ((1, ""), (2, "busy"), (3, "free")):
        came = message(seq, key)
        job = _job("p", came)
        intake._source._waiting.add(Entry(seq, job.ordering_key, 1, 0.0, (job, came)))
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await intake.claim(consumer, 10)
    assert intake._source._waiting.called == 0
    database.broken = False
    claimed = await intake.claim(consumer, 10)
    assert sorted(-job.seq for job in claimed) == [1, 2, 3]
    await intake.close()


async def test_a_success_behind_a_failure_is_stored_though_the_definition_knows_of_none() -> None:
    """Or a consumer with little to do would be held for failing all the time since."""
    stored: list[list[bool]] = []

    class Storing(StreamIntake):
        def _store(self, tx: Any, notes: Any, calls: Any) -> Written:
            stored.append([call.ok for call in calls])
            return Written([], [], None)

    async def write(what: Any) -> Any:
        return what(None)

    consumer: Any = SimpleNamespace(
        seq=1, settings=ConsumerSettings(), stream=None, failing_since_us=None
    )
    runtime: Any = SimpleNamespace(
        database=SimpleNamespace(write=write),
        claim=nothing_claimed,
        streams=None,
        clock=SimpleNamespace(monotonic_ns=lambda: 0),
    )
    intake = Storing(runtime, consumer, "push", lambda tx: None, lambda: True)
    job: Any = SimpleNamespace(seq=-1, ordering_key=None)
    for ok in (True, False, True, True, False, True):
        call: Any = SimpleNamespace(job=job, ok=ok)
        await intake.store(PushNotes(consumer, [call], lambda: 0.5))
    assert stored == [[False], [True], [False], [True]]
    await intake.close()
