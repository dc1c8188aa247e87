"""The leased API: batches, fences, ceilings, long poll, ordering keys."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
import uvicorn

from headrace.clock import ManualClock
from headrace.jobs import limits
from headrace.jobs.http import create_app
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.models import Consumer, NewMessage
from headrace.jobs.runtime.lookout import JobWaiter
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service import leases
from headrace.jobs.service.definitions import consumers
from headrace.jobs.service.publishing import accepting
from headrace.jobs.service.retention import Keep
from headrace.jobs.service.storing import Fresh, store_messages
from headrace.jobs.store import Tx, open_database
from jobs_world import PULL, World, claim_of, end_of, held
from waiting import elapse, until

DAY_S = 86_400.0


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Awaitable[None]]:
    """Await ``waited(n)`` until n claims more have found nothing, and wait."""
    waits, wait = asyncio.Semaphore(0), JobWaiter.wait

    async def noted(waiter: JobWaiter, timeout_s: float | None = None) -> None:
        waits.release()
        await wait(waiter, timeout_s)

    async def waited(count: int) -> None:
        async with asyncio.timeout(20):
            for _ in range(count):
                await waits.acquire()

    monkeypatch.setattr(JobWaiter, "wait", noted)
    return waited


async def test_a_claim_takes_each_job_once_in_order(world: World) -> None:
    for number, priority in enumerate([0, 3, 0, 3]):
        await world.broadcast(str(number), X_Broker_Message_Priority=str(priority))
    first, second = await world.claim(3), await world.claim(3)
    assert [job["message"]["payload"] for job in first + second] == ["1", "3", "0", "2"]
    assert {job["attempt"] for job in first} == {1}
    assert await world.claim(3) == []
    assert await world.queued() == []


async def test_a_payload_that_is_no_text_comes_as_base64(world: World) -> None:
    await world.broadcast(b"\xff\x00")
    assert (await world.queued())[0]["Message"]["PayloadEncoding"] == "base64"
    message = (await world.claim())[0]["message"]
    assert (message["payload"], message["encoding"]) == ("/wA=", "base64")


async def test_completing_again_under_the_same_lease_is_ok_again(world: World) -> None:
    await world.broadcast()
    jobs = await world.claim()
    for _ in range(2):
        result = (await world.lease("complete", jobs=held(*jobs)))["results"][0]
        assert (result["code"], result["state"]) == ("ok", "DELIVERED")


@pytest.mark.parametrize("what", ["complete", "fail", "release", "heartbeat"])
async def test_a_late_holder_of_an_old_lease_gets_409(world: World, what: str) -> None:
    await world.broadcast()
    old = await world.claim(lease=5)
    await world.sweep(6)
    new = await world.claim(lease=5)
    assert new[0]["id"] == old[0]["id"]
    refused = await world.lease(what, 409, jobs=held(*old))
    assert refused["results"][0]["code"] == "lease_lost"
    assert await world.state(old[0]["id"]) == "INFLIGHT"
    await world.lease("complete", jobs=held(*new))
    refused = await world.lease(what, 409, jobs=held(*old))
    assert refused["results"][0]["state"] == "DELIVERED"


async def test_each_item_of_a_batch_has_its_own_result(world: World) -> None:
    for _ in range(3):
        await world.broadcast()
    a, b, c = await world.claim(3)
    await world.lease("release", jobs=held(b))
    answer = await world.lease("complete", jobs=[*held(a, b, c), {"id": "999", "lease": "x"}])
    assert [item["status"] for item in answer["results"]] == [200, 409, 200, 404]
    assert [item["id"] for item in answer["results"]] == [a["id"], b["id"], c["id"], "999"]


async def test_heartbeats_move_the_deadline_from_now_and_stop_at_the_ceiling(world: World) -> None:
    await world.broadcast()
    jobs = await world.claim(lease=10)
    for _ in range(3):
        world.clock.advance(9)
        await world.lease("heartbeat", jobs=held(*jobs), lease_seconds=10)
        assert (await world.sweep()).expired == 0
    for _ in range(12):
        world.clock.advance(3590)
        answer = await world.lease("heartbeat", jobs=held(*jobs), lease_seconds=3600)
        if answer["results"][0]["at"] == (await world.job(jobs[0]["id"]))["lease_expires_at"]:
            continue
    world.clock.advance(600)
    refused = await world.lease("heartbeat", 409, jobs=held(*jobs), lease_seconds=10)
    assert refused["results"][0]["code"] == "lease_ceiling"
    await world.sweep()
    assert await world.state(jobs[0]["id"]) == "QUEUED"


async def test_a_failed_job_waits_for_its_delay_and_the_delays_grow(world: World) -> None:
    await world.broadcast()
    for delay in (5, 30, 60, 120, 180):
        jobs = await world.claim()
        answer = await world.lease("fail", jobs=[{**held(*jobs)[0], "reason": "busy"}])
        assert answer["results"][0]["state"] == "QUEUED"
        world.clock.advance(delay - 0.01)
        assert await world.claim() == []
        world.clock.advance(0.02)
    jobs = await world.claim()
    answer = await world.lease("fail", jobs=[{**held(*jobs)[0], "reason": "enough"}])
    assert answer["results"][0]["state"] == "DEAD"
    detail = await world.job(jobs[0]["id"])
    assert detail["last_error"] == "enough"
    assert [attempt["error"] for attempt in detail["attempts"]] == ["busy"] * 5 + ["enough"]


async def test_a_failure_may_name_its_delay_or_be_final(world: World) -> None:
    await world.broadcast()
    await world.broadcast()
    a, b = await world.claim(2)
    await world.lease(
        "fail",
        jobs=[
            {**held(a)[0], "retry_in_seconds": 1000},
            {**held(b)[0], "dead": True, "reason": "never"},
        ],
    )
    assert await world.state(b["id"]) == "DEAD"
    world.clock.advance(999)
    assert await world.claim() == []
    world.clock.advance(2)
    assert (await world.claim())[0]["id"] == a["id"]


async def test_a_delayed_job_of_high_priority_does_not_hide_ready_ones(world: World) -> None:
    for number in range(5):
        await world.broadcast(str(number), X_Broker_Message_Priority="9")
    jobs = await world.claim(5)
    await world.lease("release", jobs=held(*jobs), delay_seconds=100)
    await world.broadcast("ready")
    assert [job["message"]["payload"] for job in await world.claim(5)] == ["ready"]
    listed = [job["Message"]["Payload"] for job in await world.queued()]
    assert listed == ["0", "1", "2", "3", "4"], "the specified list shows what waits, too"


async def test_releasing_is_not_counted(world: World) -> None:
    await world.broadcast()
    for _ in range(8):
        jobs = await world.claim()
        await world.lease("release", jobs=held(*jobs))
    detail = await world.job(jobs[0]["id"])
    assert (detail["retries"], detail["claims"], detail["state"]) == (0, 8, "QUEUED")


async def test_a_leased_job_is_not_finished_by_the_unfenced_route(world: World) -> None:
    await world.broadcast()
    job = (await world.claim())[0]
    await world.move(job["id"], "DELIVERED", 400)
    await world.move(job["id"], "DEAD", 400)
    await world.lease("complete", jobs=held(job))


async def test_a_long_poll_gets_a_job_the_moment_it_is_there(
    world: World, waited: Callable[[int], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_S", 60.0)  # nothing but the waiters wakes it
    waiting = asyncio.create_task(world.lease("claim", max=5, wait_seconds=60))
    await waited(1)
    assert not waiting.done()
    await world.broadcast("now")
    async with asyncio.timeout(20):
        answer = await waiting
    assert [job["message"]["payload"] for job in answer["jobs"]] == ["now"]


async def test_waiting_workers_share_what_comes(
    world: World, waited: Callable[[int], Awaitable[None]]
) -> None:
    waiting = [asyncio.create_task(world.lease("claim", max=1, wait_seconds=60)) for _ in range(4)]
    await waited(4)
    for number in range(4):
        await world.broadcast(str(number))
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting)
    assert sorted(answer["jobs"][0]["message"]["payload"] for answer in answers) == list("0123")


@pytest.mark.one_database
async def test_a_draining_service_lets_its_long_polls_go(
    world: World, waited: Callable[[int], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_S", 60.0)
    waiting = asyncio.create_task(world.lease("claim", wait_seconds=60))
    await waited(1)
    world.runtime.draining.set()
    world.runtime.waiters.ring(())
    async with asyncio.timeout(20):
        assert (await waiting)["jobs"] == []


async def test_jobs_of_one_key_are_handed_out_one_at_a_time_in_order(world: World) -> None:
    for number in range(4):
        await world.broadcast(
            f"a{number}", X_Broker_Ordering_Key="a", X_Broker_Message_Priority=str(number)
        )
        await world.broadcast(f"b{number}", X_Broker_Ordering_Key="b")
    seen: list[str] = []
    for _ in range(4):
        jobs = await world.claim(10)
        assert len(jobs) == 2
        seen += [job["message"]["payload"] for job in jobs]
        await world.lease("complete", jobs=held(*jobs))
    assert [name for name in seen if name[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [name for name in seen if name[0] == "b"] == ["b0", "b1", "b2", "b3"]


async def test_a_failing_job_holds_back_its_key_until_it_is_done_or_dead(world: World) -> None:
    for number in range(3):
        await world.broadcast(str(number), X_Broker_Ordering_Key="a")
    jobs = await world.claim(10)
    await world.lease("fail", jobs=[{**held(*jobs)[0], "retry_in_seconds": 50}])
    assert await world.claim(10) == []
    blocked = (await world.queued())[-1]["ID"]
    await world.move(blocked, "INFLIGHT", 400)
    world.clock.advance(51)
    jobs = await world.claim(10)
    assert [job["message"]["payload"] for job in jobs] == ["0"]
    await world.lease("fail", jobs=[{**held(*jobs)[0], "dead": True}])
    second = await world.claim(10)
    assert [job["message"]["payload"] for job in second] == ["1"]
    # Sent back from the dead letters while another of its key is under way, it waits its turn.
    requeue = f"/channel/c/consumer/k/job/{jobs[0]['id']}/requeue-dead-job"
    assert (await world.http.post(requeue, headers=PULL)).status_code == 202
    assert await world.claim(10) == []
    await world.lease("complete", jobs=held(*second))
    assert [job["message"]["payload"] for job in await world.claim(10)] == ["0"]


async def test_an_expired_lease_lets_the_same_job_of_the_key_go_again(world: World) -> None:
    for number in range(2):
        await world.broadcast(str(number), X_Broker_Ordering_Key="a")
    await world.claim(10, lease=5)
    await world.sweep(6)
    assert [job["message"]["payload"] for job in await world.claim(10)] == ["0"]


async def test_a_paused_consumer_hands_out_nothing_until_resumed(world: World) -> None:
    await world.broadcast()
    path = "/v2/channel/c/consumer/k"
    assert (await world.http.patch(path, json={"paused": True})).json()["paused"] is True
    assert await world.claim() == []
    await world.http.patch(path, json={"paused": False})
    assert len(await world.claim()) == 1


@pytest.mark.parametrize("change", [{"paused": True}, {"settings": {"concurrency": 1}}, "gone"])
async def test_a_claim_that_began_before_a_change_takes_nothing_by_the_old_definition(
    world: World, change: Any
) -> None:
    def found(tx: Tx) -> Consumer:
        return consumers.find_consumer(tx, "c", "k")

    database = world.runtime.database
    before = await database.read(found)
    if change == "gone":
        await database.write(
            lambda tx: tx.run("disable_consumer", seq=before.seq, now=1, reason="410 Gone")
        )
    else:
        patched = await world.http.patch("/v2/channel/c/consumer/k", json=change)
        assert patched.status_code == 200
    await world.broadcast()
    assert await claim_of(world.runtime, before, 8, 30) == []
    back = {"paused": False, "enable": True}
    assert (await world.http.patch("/v2/channel/c/consumer/k", json=back)).status_code == 200
    assert len(await claim_of(world.runtime, await database.read(found), 8, 30)) == 1


@pytest.mark.parametrize(
    ("what", "body", "field"),
    [
        ("claim", {"max": 0}, "max"),
        ("claim", {"max": 501}, "max"),
        ("claim", {"max": "1"}, "max"),
        ("claim", {"lease_seconds": 0}, "lease_seconds"),
        ("claim", {"lease_seconds": 3601}, "lease_seconds"),
        ("claim", {"wait_seconds": -1}, "wait_seconds"),
        ("claim", {"wait_seconds": 61}, "wait_seconds"),
        ("claim", {"limit": 1}, "body"),
        ("complete", {}, "body"),
        ("complete", {"jobs": []}, "jobs"),
        ("complete", {"jobs": [{"id": "1"}]}, "jobs[0]"),
        ("complete", {"jobs": [{"id": "1", "lease": "a"}, {"id": "1", "lease": "b"}]}, "jobs"),
        ("complete", {"jobs": [{"id": str(n + 1), "lease": "a"} for n in range(501)]}, "jobs"),
        ("fail", {"jobs": [{"id": "1", "lease": "a", "retry_in_seconds": -1}]}, "retry_in_seconds"),
        ("release", {"jobs": [{"id": "1", "lease": "a"}], "delay_seconds": 1e9}, "delay_seconds"),
    ],
)
@pytest.mark.one_database
async def test_a_request_out_of_range_names_the_field(
    world: World, what: str, body: dict[str, Any], field: str
) -> None:
    answer = await world.lease(what, 400, **body)
    assert answer["field"] == field
    assert answer["message"]


async def test_a_consumer_cannot_touch_the_jobs_of_another(world: World) -> None:
    await world.consumer("other", type="pull", token="kt")
    await world.broadcast()
    job = (await world.claim(consumer="other"))[0]
    for what in ("complete", "fail", "release", "heartbeat"):
        answer = await world.lease(what, 404, jobs=held(job))
        assert answer["results"][0]["code"] == "not_found"
    assert await world.state(job["id"], "other") == "INFLIGHT"


@pytest.mark.one_database
async def test_nothing_is_claimed_for_a_client_that_went_away(world: World) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(create_app(world.runtime), lifespan="off", log_config=None)
        )
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        path = "/v2/channel/c/consumer/k/jobs/claim"
        async with httpx2.AsyncClient(base_url=url, timeout=30) as leaving:
            asking = asyncio.create_task(
                leaving.post(path, json={"wait_seconds": 30}, headers=PULL)
            )
            await until(lambda: server.server_state.tasks, "nobody asks")
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        await until(lambda: not server.server_state.tasks, "it is not noticed who has left")
        await world.broadcast()
        await elapse(0.2, "who has left would take it now")
        assert len(await world.queued()) == 1
        server.should_exit = True
        await serving


@pytest.mark.parametrize("what", ["complete", "fail", "release", "heartbeat"])
async def test_an_item_that_names_nothing_does_not_reject_the_others(
    world: World, what: str
) -> None:
    await world.broadcast()
    (job,) = await world.claim()
    odd = [
        {"id": name, "lease": "a"} for name in ("", "x", "0", "-1", "1" * 30, "1\u0000", "\u0661")
    ]
    strange = [{"id": "900", "lease": "a\u0000"}, {"id": "901", "lease": "\u00e4"}]
    answer = await world.lease(what, jobs=[*odd, *held(job), *strange])
    shown = [(one["id"], one["status"], one["code"]) for one in answer["results"]]
    assert shown == [
        *((one["id"], 404, "not_found") for one in odd),
        (job["id"], 200, "ok"),
        *((one["id"], 409, "invalid_lease") for one in strange),
    ]
    assert all(one["message"] for one in answer["results"] if one["status"] != 200)
    for status, item in ((404, odd[1]), (409, strange[0])):
        (result,) = (await world.lease(what, status, jobs=[item]))["results"]
        assert result["status"] == status


@pytest.mark.parametrize("dead", [False, True])
async def test_a_failure_reported_again_has_the_first_result_and_counts_once(
    world: World, dead: bool
) -> None:
    await world.broadcast()
    (job,) = await world.claim()
    item = {**held(job)[0], "reason": "no", "dead": dead}
    first = await world.lease("fail", jobs=[item])
    world.clock.advance(1)
    assert await world.lease("fail", jobs=[item]) == first
    detail = await world.job(job["id"])
    assert (detail["state"], detail["retries"]) == (("DEAD", 0) if dead else ("QUEUED", 1))
    assert len(detail["attempts"]) == 1
    counted = (await world.http.get("/metrics")).text
    assert 'jobs_completed_total{channel="c",consumer="k",outcome="failed"} 1' in counted
    await world.lease("complete", 409, jobs=held(job))
    other = {**item, "lease": "other"}
    await world.lease("fail", 409, jobs=[other])


async def test_a_failure_is_too_late_once_the_lease_is_over(world: World) -> None:
    await world.http.patch("/v2/channel/c/consumer/k", json={"max_retries": 1})
    await world.broadcast()
    for state in ("QUEUED", "DEAD"):
        (job,) = await world.claim()
        await world.sweep(31)
        assert await world.state(job["id"]) == state
        (result,) = (await world.lease("fail", 409, jobs=held(job)))["results"]
        assert result["code"] == "lease_lost"


@pytest.mark.parametrize(
    "path", ["/channel/%00", "/channel/c/message/%00", "/v2/channel/c/consumer/%C3%A9"]
)
async def test_a_path_with_strange_characters_is_404(world: World, path: str) -> None:
    assert (await world.http.get(path)).status_code == 404


async def test_a_reason_with_strange_characters_is_kept_readable(world: World) -> None:
    await world.broadcast()
    jobs = await world.claim()
    await world.lease("fail", jobs=[{**held(*jobs)[0], "reason": "a\u0000b", "dead": True}])
    assert (await world.job(jobs[0]["id"]))["last_error"] == "a\ufffdb"


async def test_leases_follow_the_databases_clock_whatever_the_processes_think(
    database_url: str, world: World
) -> None:
    """Two processes whose clocks are a day apart, on one database with a clock of its own."""
    database_clock = ManualClock() if database_url.startswith("sqlite") else None
    runtimes = []
    for off_s in (-DAY_S, DAY_S):
        wrong = ManualClock(time.time_ns() + round(off_s * 1e9))
        database = open_database(database_url, threads=1, clock=database_clock)
        runtimes.append(Runtime(database, clock=wrong))
        await runtimes[-1].start()
    slow, fast = runtimes
    try:
        for claimer, other in ((slow, fast), (fast, slow)):
            await publish(slow)
            consumer = await slow.database.read(lambda tx: consumers.find_consumer(tx, "c", "k"))
            before = await slow.database.read(lambda tx: tx.now_us())
            (job,) = await claim_of(claimer, consumer, 1, 30.0)
            after = await slow.database.read(lambda tx: tx.now_us())
            assert before + 30_000_000 <= job.deadline_us <= after + 30_000_000
            await Maintenance(other, Keep()).tick()
            held = [leases.completed(leases.Held(job.seq, job.lease))]
            done = await other.database.write(
                lambda tx: end_of(tx, consumer, held, tx.now_us())  # noqa: B023
            )
            assert [result.code for result in done] == ["ok"], "nobody took it away meanwhile"
    finally:
        for runtime in runtimes:
            await runtime.close()


async def publish(runtime: Runtime) -> None:
    message = NewMessage(payload=b"x")

    def write(tx: Tx) -> None:
        allowed = accepting.publisher(tx, "c", "ct", "p", "pt")
        fresh = Fresh(allowed["channel_seq"], allowed["producer_seq"], message, filtered=False)
        store_messages(tx, [fresh], tx.now_us())

    await runtime.database.write(write)


async def test_the_databases_clock_is_the_servers(postgres_url: str) -> None:
    database = open_database(postgres_url, threads=1)
    await database.start()
    try:
        before = time.time_ns() // 1000
        first = await database.write(lambda tx: (tx.now_us(), tx.now_us()))
        assert first[0] == first[1], "one transaction, one time"
        assert before - 1000 <= first[0] <= time.time_ns() // 1000 + 1000
    finally:
        await database.close()


async def test_a_claim_carries_so_many_bytes_and_the_rest_comes_with_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 1000)
    for number in range(10):
        await world.broadcast(f"{number}" * 300, X_Broker_Message_Priority=str(number // 5))
    listed = [job["Message"]["Payload"][0] for job in await world.queued(100)]
    claims = [await world.claim(10) for _ in range(4)]
    told = [[job["message"]["payload"][0] for job in claim] for claim in claims]
    assert told == [list("5678"), list("9012"), list("34"), []]
    assert {job["attempt"] for claim in claims for job in claim} == {1}
    assert listed == list("5678"), "the list, which claims nothing, ends there, too"
    for claim in claims[:3]:
        answer = await world.lease("complete", jobs=held(*claim))
        assert {result["code"] for result in answer["results"]} == {"ok"}
    counted = (await world.http.get("/v2/channel/c/consumer/k")).json()["jobs"]
    assert counted == {"QUEUED": 0, "INFLIGHT": 0, "DELIVERED": 10, "DEAD": 0}


async def test_one_job_is_given_however_large_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 100)
    for _ in range(2):
        await world.broadcast("x" * 5000)
    assert [len(await world.claim(n)) for n in (2, 1, 1)] == [1, 1, 0]


async def test_all_are_given_together_where_one_has_more_than_its_share_of_the_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 1000)
    for size in (700, 20, 20):
        await world.broadcast("x" * size)
    claim = await world.claim(3)
    assert [len(job["message"]["payload"]) for job in claim] == [700, 20, 20]


def test_the_timeout_of_a_pull_job_is_the_specified_sum() -> None:
    assert leases.pull_timeout_s(30, 2, 0) == 32.25
    assert leases.pull_timeout_s(30, 2, 10) == 42.25
