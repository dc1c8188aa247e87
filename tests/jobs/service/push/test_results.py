"""Since when an endpoint has been failing, though a lane's definition of its consumer may be older."""

from __future__ import annotations

from typing import Any

from headrace.jobs.models import ClaimedJob, Consumer
from headrace.jobs.service.definitions.consumers import find_consumer
from headrace.jobs.service.push.results import Called, PushNotes, note_all
from jobs_world import World

LIMIT_S = 100


def called(*, ok: bool) -> Called:
    """A call of a job that is another's by now: nothing of it counts but how it went."""
    job = ClaimedJob(
        seq=1,
        lease="l",
        deadline_us=0,
        attempt=1,
        retries=5,
        priority=0,
        created_us=0,
        message_seq=1,
        message_id="m",
        payload=b"",
        content_type="text/plain",
        headers={},
        ordering_key=None,
    )
    return Called(
        job=job,
        ok=ok,
        status=200 if ok else 500,
        error=None if ok else "status 500",
        excerpt=None,
        retry_after_s=None,
        begun_us=0,
        duration_us=1,
    )


async def defined(world: World) -> Consumer:
    await world.consumer("h", callbackUrl="http://127.0.0.1:1/", token="ht")
    settings = {"breaker": {"disable_after_s": LIMIT_S}}
    response = await world.http.patch("/v2/channel/c/consumer/h", json={"settings": settings})
    assert response.status_code == 200, response.text
    return await read(world)


async def read(world: World) -> Consumer:
    return await world.runtime.database.read(lambda tx: find_consumer(tx, "c", "h"))


async def noted(world: World, consumer: Consumer, *, ok: bool) -> str | None:
    """Why the consumer is disabled by a call that was made by this definition."""

    def write(tx: Any) -> str | None:
        (outcome,) = note_all(tx, [PushNotes(consumer, [called(ok=ok)], lambda: 0.5)])
        disabled: str | None = outcome.value.disabled
        return disabled

    return await world.runtime.database.write(write)


async def test_a_success_behind_a_failure_counts_though_its_definition_knows_of_none(
    world: World,
) -> None:
    before = await defined(world)
    assert await noted(world, before, ok=False) is None
    assert (await read(world)).failing_since_us is not None
    assert await noted(world, before, ok=True) is None
    assert (await read(world)).failing_since_us is None
    world.clock.advance(LIMIT_S + 1)  # nothing was called meanwhile
    assert await noted(world, before, ok=False) is None
    assert (await read(world)).disabled_us is None


async def test_a_failure_whose_definition_knows_of_an_older_one_disables_nothing_that_went_well_since(
    world: World,
) -> None:
    before = await defined(world)
    await noted(world, before, ok=False)
    failing = await read(world)
    await noted(world, failing, ok=True)
    world.clock.advance(LIMIT_S + 1)
    assert await noted(world, failing, ok=False) is None
    assert (await read(world)).disabled_us is None


async def test_what_failed_for_so_long_is_disabled_by_whatever_definition(world: World) -> None:
    before = await defined(world)
    await noted(world, before, ok=False)
    world.clock.advance(LIMIT_S - 1)
    assert await noted(world, before, ok=False) is None
    world.clock.advance(1)
    assert await noted(world, before, ok=False) == f"every call failed for {LIMIT_S} s"
    assert (await read(world)).disabled_us is not None
