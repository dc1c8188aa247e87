"""The metrics of jobs: every counter against what happened, in a random run."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.jobs import limits
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.metrics import BOUNDS_S, Metrics
from headrace.jobs.models import rfc3339
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.service import page_reads
from headrace.jobs.service.retention import Keep
from headrace.jobs.store import Tx
from jobs_endpoint import Endpoint, answer
from jobs_world import PRODUCER, World, held
from waiting import until

SEED = 34
STEPS = 120
DAY = 86_400.0
COUNTERS = {
    "jobs_published_total",
    "jobs_enqueued_total",
    "jobs_claimed_total",
    "jobs_completed_total",
    "jobs_retries_total",
    "jobs_dead_total",
    "jobs_lease_expired_total",
    "push_attempts_total",
    "prune_rows_total",
}
_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


async def shown(world: World, names: set[str]) -> dict[tuple[str, ...], float]:
    """These metrics as they are served: by name and values of labels."""
    found = {}
    for line in (await world.http.get("/metrics")).text.splitlines():
        match = _LINE.fullmatch(line)
        if match and match[1] in names and float(match[3]):
            values = re.findall(r'="([^"]*)"', match[2] or "")
            found[match[1], *values] = float(match[3])
    return found


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


async def test_names_are_shown_to_those_who_may_see_them_and_totals_to_all(world: World) -> None:
    await world.put("/channel/hidden-channel", token="dt")
    await world.put("/channel/hidden-channel/consumer/hidden", token="x", type="pull")
    path, tokens = "/channel/hidden-channel/broadcast", {"X-Broker-Channel-Token": "dt"}
    await world.http.post(path, content=b"x", headers={**PRODUCER, **tokens})
    await world.broadcast()
    world.clock.advance(7)
    await world.claim()
    world.runtime.metrics.set("jobs_part_failing", 1, part="feed hidden-channel")
    keys = {
        scope: (await world.http.post("/v2/keys", json={"name": "x", "scopes": [scope]})).json()
        for scope in ("operate", "publish")
    }
    few = {"name": "x", "scopes": ["operate"], "channels": ["c"]}
    keys["few"] = (await world.http.post("/v2/keys", json=few)).json()
    world.runtime.admin_token = "sesame"

    async def ask(token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await world.http.get("/metrics", headers=headers)
        return answer.status_code, answer.text

    for token in ("sesame", keys["operate"]["key"]):
        status, named = await ask(token)
        assert status == 200
        depth = 'jobs_queue_depth{channel="hidden-channel",consumer="hidden",state="QUEUED"} 1'
        assert depth in named
    for token in ("wrong", keys["publish"]["key"], keys["few"]["key"]):
        status, told = await ask(token)
        assert (status, "hidden" in told) == (403, False)
    status, totals = await ask()
    assert status == 200
    assert "hidden" not in totals
    assert "channel=" not in totals
    for line in (
        "jobs_published_total 2",
        'jobs_queue_depth{state="QUEUED"} 1',
        'jobs_queue_depth{state="INFLIGHT"} 1',
        "jobs_oldest_ready_age_seconds 7",
        "jobs_claimed_total 1",
        "jobs_claim_duration_seconds_count 1",
        "jobs_part_failing 1",
    ):
        assert f"\n{line}\n" in totals, line


def test_a_histogram_counts_as_all_of_its_series() -> None:
    metrics = Metrics()
    for number in range(5):
        metrics.observe("jobs_end_to_end_seconds", 0.3, channel=f"c{number}")
    text = metrics.page().text(2 * (len(BOUNDS_S) + 3))
    assert text.count("jobs_end_to_end_seconds_count{") == 2
    assert 'jobs_end_to_end_seconds_bucket{channel="c1",le="0.5"} 1\n' in text
    lines = sum(line.startswith("jobs_end_to_end_seconds") for line in text.splitlines())
    assert text.endswith(f"\njobs_left_out_series {lines // 2 * 3}\n")


async def test_numbers_of_many_consumers_are_looked_at_in_slices_up_to_a_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRICS_CONSUMERS_MAX", 5)
    monkeypatch.setattr(limits, "METRICS_SLICE", 2)
    for number in range(7):
        await world.consumer(f"a{number}", type="pull", token="x")
    await world.broadcast()
    looked: list[int] = []
    one_slice = page_reads.depths_behind

    def counted(tx: Tx, channel_id: str, consumer_id: str, n: int) -> Any:
        looked.append(n)
        return one_slice(tx, channel_id, consumer_id, n)

    monkeypatch.setattr(page_reads, "depths_behind", counted)
    told = await asyncio.gather(*(world.http.get("/metrics") for _ in range(9)))
    assert looked == [2, 2, 1], "who asks meanwhile gets the same"
    for each in told:
        shown = re.findall(
            r'jobs_queue_depth{channel="c",consumer="(\w+)",state="QUEUED"} 1', each.text
        )
        assert shown == ["a0", "a1", "a2", "a3", "a4"]
        assert "\njobs_left_out_series 15\n" in each.text
    monkeypatch.setattr(limits, "METRICS_SERIES_MAX", 4)
    text = (await world.http.get("/metrics")).text
    assert text.count("jobs_queue_depth{") == text.count("jobs_oldest_ready_age_seconds{") == 4
    assert "\njobs_left_out_series 32\n" in text  # 15, and of 20 and of 5 series
    world.runtime.admin_token = "sesame"
    assert '\njobs_queue_depth{state="QUEUED"} 8\n' in (await world.http.get("/metrics")).text


class Run:
    """Random requests, each counted by its answer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(SEED)
        self.counted: Counter[tuple[str, ...]] = Counter()
        self.held: list[dict[str, Any]] = []
        self.finished: list[tuple[str, dict[str, Any]]] = []
        self.waiting: list[int] = []
        self.maintenance = Maintenance(world.runtime)

    def count(self, name: str, *labels: str, n: int = 1) -> None:
        if n:
            self.counted[name, *labels] += n

    def ended(self, outcome: str, result: dict[str, Any]) -> None:
        self.count(
            "jobs_completed_total", "c", "k", outcome if result["status"] == 200 else "refused"
        )
        if result["status"] == 200 and outcome == "failed":
            if result["state"] == "DEAD":
                self.count("jobs_dead_total", "c", "k", "failed")
            else:
                self.count("jobs_retries_total", "c", "k")

    async def publish(self) -> None:
        headers: dict[str, Any] = {"X_Broker_Message_Priority": str(self.rng.randrange(3))}
        self.count("jobs_published_total", "c")
        if self.rng.random() < 0.3:
            at = self.world.runtime.now_us() + 121_000_000
            self.waiting.append(at)
            headers["X_Broker_Scheduled_For"] = rfc3339(at)
        else:
            self.count("jobs_enqueued_total", "c", n=2)
        await self.world.broadcast(**headers)

    async def claim(self) -> None:
        jobs = await self.world.claim(self.rng.randint(1, 3))
        self.count("jobs_claimed_total", "c", "k", n=len(jobs))
        self.held += jobs

    async def finish(self) -> None:
        if not self.held:
            return
        what = self.rng.choice(["complete", "fail", "release"])
        job = self.held.pop(self.rng.randrange(len(self.held)))
        item = {**held(job)[0], **({"dead": self.rng.random() < 0.2} if what == "fail" else {})}
        outcome = {"complete": "delivered", "fail": "failed", "release": "released"}[what]
        result = await self.tell(what, item)
        self.ended(outcome, result)
        if result["status"] == 200 and what != "release":
            self.finished = [(what, item)]

    async def again(self) -> None:
        """What was said last, again: it is the same result, and not counted."""
        if self.finished:
            what, item = self.finished.pop()
            result = await self.tell(what, item)
            if result["status"] != 200:
                self.ended("", result)

    async def tell(self, what: str, item: dict[str, Any]) -> dict[str, Any]:
        response = await self.world.http.post(
            f"/v2/channel/c/consumer/k/jobs/{what}",
            json={"jobs": [item]},
            headers={"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"},
        )
        (result,) = response.json()["results"]
        found: dict[str, Any] = result
        return found

    async def move(self) -> None:
        """A whole job by the specified route."""
        queued = await self.world.queued()
        if not queued:
            return
        job = queued[0]["ID"]
        for state in ("INFLIGHT", "INFLIGHT", self.rng.choice(["DELIVERED", "DEAD"])):
            await self.world.move(job, state)
        self.count("jobs_claimed_total", "c", "k")
        self.ended(
            "delivered" if state == "DELIVERED" else "failed", {"status": 200, "state": state}
        )
        if state == "DEAD" and self.rng.random() < 0.5:
            await self.world.move(job, "INFLIGHT")
            self.count("jobs_claimed_total", "c", "k")
            await self.world.move(job, "DELIVERED")
            self.ended("delivered", {"status": 200})

    async def sleep(self) -> None:
        self.world.clock.advance(self.rng.randrange(25))
        now = self.world.runtime.now_us()
        rows = await self.world.runtime.database.write(
            lambda tx: list(tx.all("load_expired", now=now, n=1000))
        )
        for row in rows:
            assert row["consumer_id"] == "k", "no call of the endpoint takes so long"
            self.count("jobs_lease_expired_total", "c", "k")
            if row["retries"] < row["max_retries"]:
                self.count("jobs_retries_total", "c", "k")
            else:
                self.count("jobs_dead_total", "c", "k", "expired")
        due = [at for at in self.waiting if at <= now]
        self.waiting = [at for at in self.waiting if at > now]
        self.count("jobs_enqueued_total", "c", n=2 * len(due))
        await self.maintenance.tick()


async def test_every_counter_says_what_happened(world: World, endpoint: Endpoint) -> None:
    rng = random.Random(SEED + 1)
    endpoint.respond = lambda call: answer(rng.choice([200, 204, 404, 500]))
    await world.consumer("h", callbackUrl=endpoint.url, token="ht", maxRetries="2")
    await world.http.patch("/v2/channel/c/consumer/k", json={"max_retries": 1})
    settings = {"retry": {"kind": "schedule", "delays_s": [0]}, "breaker": {"failures": 100000}}
    await world.http.patch("/v2/channel/c/consumer/h", json={"settings": settings})
    run, engine = Run(world), PushEngine(world.runtime)
    pushing = asyncio.create_task(engine.run())
    steps = [run.publish, run.publish, run.claim, run.claim, run.finish, run.again, run.move]
    for _ in range(STEPS):
        await run.rng.choice([*steps, run.sleep])()
        await asyncio.sleep(0)

    async def pushed() -> bool:
        states = (await world.http.get("/v2/channel/c/consumer/h")).json()["jobs"]
        return bool(states["QUEUED"] + states["INFLIGHT"] == 0)

    await until(pushed, "the endpoint has not got everything", within=20)
    engine.stop()
    await pushing
    await count_pushes(run, endpoint)
    world.clock.advance(2 * DAY)
    removed = await Maintenance(world.runtime, Keep(messages_s=DAY, dead_s=DAY)).retain()
    for table, rows in removed.rows.items():
        run.count("prune_rows_total", table, n=rows)
    assert await shown(world, COUNTERS) == run.counted
    assert {name for name, *_ in run.counted} == COUNTERS, "the run had nothing of some kind"
    assert run.counted["jobs_dead_total", "c", "k", "expired"]


async def count_pushes(run: Run, endpoint: Endpoint) -> None:
    """What the endpoint saw, and what became of its jobs."""
    states = (await run.world.http.get("/v2/channel/c/consumer/h")).json()["jobs"]
    calls, dead, delivered = len(endpoint.calls), states["DEAD"], states["DELIVERED"]
    run.count("jobs_claimed_total", "c", "h", n=calls)
    run.count("jobs_completed_total", "c", "h", "delivered", n=delivered)
    run.count("jobs_completed_total", "c", "h", "failed", n=calls - delivered)
    run.count("jobs_dead_total", "c", "h", "failed", n=dead)
    run.count("jobs_retries_total", "c", "h", n=calls - delivered - dead)
    classes = await shown(run.world, {"push_attempts_total"})
    assert sum(classes.values()) == calls
    assert classes["push_attempts_total", "c", "h", "2xx"] == delivered
    run.counted.update({key: int(value) for key, value in classes.items()})


async def test_the_oldest_job_is_the_one_that_waits_longest(world: World) -> None:
    name = {"jobs_oldest_ready_age_seconds"}
    key = ("jobs_oldest_ready_age_seconds", "c", "k")
    assert await shown(world, name) == {}
    await world.broadcast()
    world.clock.advance(5)
    await world.broadcast(X_Broker_Message_Priority="7")
    world.clock.advance(1)
    await world.broadcast(X_Broker_Message_Priority="9")
    assert (await shown(world, name))[key] == 6
    await world.lease("complete", jobs=held(*await world.claim(2)))
    assert (await shown(world, name))[key] == 6
    await world.lease("complete", jobs=held(*await world.claim(2)))
    assert await shown(world, name) == {}


async def test_what_was_deleted_is_named_no_more_and_its_counts_stay_in_the_totals(
    world: World,
) -> None:
    await world.put("/channel/d", token="dt")
    await world.put("/channel/d/consumer/gone", token="x", type="pull")
    await world.consumer("gone", token="x", type="pull")
    for path, token in (("/channel/c/broadcast", "ct"), ("/channel/d/broadcast", "dt")):
        headers = {**PRODUCER, "X-Broker-Channel-Token": token}
        assert (await world.http.post(path, content=b"x", headers=headers)).status_code == 201
    world.runtime.metrics.observe("jobs_claim_duration_seconds", 0.1, channel="c", consumer="gone")
    world.runtime.metrics.set("push_breaker_state", 2, channel="c", consumer="gone")
    await world.claim()
    for path in ("/channel/c/consumer/gone", "/channel/d"):
        version = (await world.http.get(path)).headers["last-modified"]
        unchanged = {"If-Unmodified-Since": version}
        deleted = await world.http.delete(f"{path}?discard=true", headers=unchanged)
        assert deleted.is_success, deleted.text
    world.runtime.admin_token = "sesame"
    totals = (await world.http.get("/metrics")).text
    headers = {"Authorization": "Bearer sesame"}
    named = (await world.http.get("/metrics", headers=headers)).text
    assert "gone" not in named
    assert 'channel="d"' not in named
    assert 'jobs_published_total{channel="c"} 1' in named
    assert "jobs_published_total 1" in named.splitlines(), "of what was deleted"
    assert 'push_breaker_state{channel="c",consumer="gone"}' not in named
    again = [line for line in totals.splitlines() if line.startswith("jobs_published_total")]
    assert again == ["jobs_published_total 2"]


@pytest.mark.one_database
async def test_who_asks_for_all_counts_again_and_again_has_one_reader_of_the_database(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRICS_SLICE", 2)
    for number in range(5):
        await world.consumer(f"n{number}", type="pull", token="x")
    await world.broadcast()
    read, under_way, most, reads = world.runtime.database.read, 0, 0, 0

    async def watched(work: Any) -> Any:
        nonlocal under_way, most, reads
        under_way, reads = under_way + 1, reads + 1
        most = max(most, under_way)
        try:
            return await read(work)
        finally:
            under_way -= 1

    monkeypatch.setattr(world.runtime.database, "read", watched)
    paths = ["/_status", "/job-status", "/dlq-status"]
    answers = await asyncio.gather(*(world.http.get(path) for path in paths * 4))
    assert [answer.status_code for answer in answers] == [200] * 12
    assert most == 1
    assert reads == 4 * (1 + 1 + 4), "six consumers in slices of two"
    assert set(answers[1].json()["c"]) == {"k", *(f"n{number}" for number in range(5))}
