"""Retention beside what others do: nobody waits where nothing can go, and no job that was sent back goes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from headrace.jobs.maintenance import Maintenance
from headrace.jobs.service import retention
from headrace.jobs.service.retention import Keep
from headrace.jobs.store import Tx
from jobs_world import World, held

DAY = 86_400.0


async def test_where_nothing_can_go_messages_are_looked_at_without_a_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.jobs.limits.SWEEP_ROWS", 10)
    for number in range(35):
        await world.broadcast(str(number))
    world.clock.advance(2 * DAY)
    writes = 0
    write = world.runtime.database.write

    async def counted(work: Any) -> Any:
        nonlocal writes
        writes += 1
        return await write(work)

    monkeypatch.setattr(world.runtime.database, "write", counted)
    maintenance = Maintenance(world.runtime, Keep(messages_s=DAY))
    assert (await maintenance.retain()).rows.get("message", 0) == 0
    assert writes == 1, "of the notes"
    (job,) = await world.claim()
    await world.lease("complete", jobs=held(job))
    writes = 0
    assert (await maintenance.retain()).rows["message"] == 1
    assert writes == 2


class Beside:
    """A transaction, and what another one does once between two of its statements."""

    def __init__(self, tx: Tx, url: str, after: str, statement: bytes) -> None:
        self._tx, self._url, self._after, self._statement = tx, url, after, statement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def all(self, query: str, /, **values: Any) -> Any:
        found = self._tx.all(query, **values)
        if query == self._after:
            with psycopg.connect(self._url, autocommit=True) as other:
                other.execute(self._statement)
        return found


@pytest.mark.one_database
class TestOnPostgres:
    @pytest.fixture
    def database_url(self, postgres_url: str) -> str:
        return postgres_url

    async def test_a_job_that_is_sent_back_while_its_message_is_removed_stays(
        self, world: World, postgres_url: str
    ) -> None:
        """Nothing locks jobs that are finished, so another transaction may come between."""
        for number in range(2):
            await world.broadcast(str(number))
        jobs = await world.claim(2)
        await world.lease("complete", jobs=held(*jobs))
        world.clock.advance(2 * DAY)
        keep, now, database = Keep(messages_s=DAY), world.runtime.now_us(), world.runtime.database
        window = await database.read(lambda tx: retention.glance(tx, keep, 0, now))
        assert len(window.messages) == 2
        back = f"UPDATE job SET state = 1001 WHERE seq = {jobs[0]['id']}".encode()

        def remove(tx: Tx) -> retention.Removed:
            beside: Any = Beside(tx, postgres_url, "states_of_messages", back)
            return retention.remove(beside, keep, window, now, archived=False)

        removed = await database.write(remove)
        assert removed.rows == {"job": 1, "message": 1}
        assert await world.state(jobs[0]["id"]) == "QUEUED"
