"""What nobody expected is one attempt's failure, or one part's: the service goes on, and says so."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.jobs.archive import Archive
from headrace.jobs.errors import DatabaseUnavailableError
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.metrics import Metrics
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.push.sender import EndpointAnswer, Sender
from headrace.jobs.runtime import runtime as runtime_module
from headrace.jobs.runtime.parts import Parts
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.server import tell_of_loop
from headrace.jobs.service.push import results as push_results
from headrace.jobs.service.push.results import Called
from headrace.jobs.service.retention import Keep
from headrace.jobs.store import Tx
from jobs_endpoint import Endpoint, answer
from jobs_world import PRODUCER, PULL, World, held
from waiting import until

DAY = 86_400.0
ODD_DATE = "99999999999 Jan 01 12:30"
OTHERS = '{"origin": "another", "consumers": [%d]}'


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


@pytest.fixture
async def pushing(world: World, endpoint: Endpoint) -> AsyncIterator[World]:
    """The world with a push consumer ``h`` and a running engine."""
    await world.consumer("h", callbackUrl=endpoint.url, token="ht")
    engine = world.engine = PushEngine(world.runtime)
    task = asyncio.create_task(engine.run())
    yield world
    engine.stop()
    async with asyncio.timeout(10):
        await task


async def came(world: World, expected: dict[str, int]) -> None:
    """Let the lane look until its consumer's jobs are counted so."""

    async def counted() -> bool:
        world.runtime.waiters.ring(())
        body = (await world.http.get("/v2/channel/c/consumer/h")).json()
        return {state: n for state, n in body["jobs"].items() if n} == expected

    await until(counted, f"not {expected}")


async def attempts(world: World) -> list[dict[str, Any]]:
    """Those of all jobs of the push consumer."""

    def jobs(tx: Tx) -> list[int]:
        (channel,) = tx.all("get_channel", channel_id="c")
        messages = tx.all("page_messages_before", at=0, n=100, channel_seq=channel["seq"])
        seqs = json.dumps([row["seq"] for row in messages])
        rows = tx.all("jobs_of_messages", seqs=seqs)
        return [row["seq"] for row in rows if row["consumer_id"] == "h"]

    found: list[dict[str, Any]] = []
    for seq in await world.runtime.database.read(jobs):
        found += (await world.job(str(seq), "h"))["attempts"]
    return found


async def text_of(world: World, name: str) -> list[str]:
    lines = (await world.http.get("/metrics")).text.splitlines()
    return [line for line in lines if line.startswith(name)]


async def test_a_retry_after_that_is_no_date_is_a_failed_attempt_and_nothing_more(
    pushing: World, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(429, Retry_After=ODD_DATE)
    await pushing.broadcast("0")

    async def failed() -> bool:
        return [one["status"] for one in await attempts(pushing)] == [429]

    await until(failed, "the attempt is not noted")
    await came(pushing, {"QUEUED": 1})
    endpoint.respond = lambda call: answer(200)
    await pushing.broadcast("1")
    pushing.clock.advance(10)
    await came(pushing, {"DELIVERED": 2})
    assert await text_of(pushing, "push_unexpected_total{") == []


async def test_an_error_of_ours_is_one_attempt_that_failed_and_is_logged_once(
    pushing: World,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    post = Sender.post

    async def sometimes(
        self: Sender, url: str, headers: Any, body: bytes, timeout_s: float
    ) -> EndpointAnswer:
        if body == b"odd":
            raise LookupError("nobody\0 thought \ud800 of this")
        return await post(self, url, headers, body, timeout_s)

    monkeypatch.setattr(Sender, "post", sometimes)
    for payload in ("odd", "good", "odd", "good"):
        await pushing.broadcast(payload)
    await came(pushing, {"QUEUED": 2, "DELIVERED": 2})
    pushing.clock.advance(10)
    await came(pushing, {"QUEUED": 2, "DELIVERED": 2})
    await until(lambda: _sum(pushing, "push_unexpected_total") == 4)
    reasons = [one["error"] for one in await attempts(pushing) if one["error"]]
    assert "the service met what it did not expect: LookupError: nobody" in reasons[0]
    said = [record for record in caplog.records if record.exc_info and "c/h" in record.message]
    assert len(said) == 1
    assert "job " in said[0].message


def _sum(world: World, name: str) -> float:
    lines = [
        line for line in world.runtime.metrics.page().text(9).splitlines() if line.startswith(name)
    ]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_a_result_that_cannot_be_stored_holds_back_no_other(
    pushing: World, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = push_results._attempt

    def picky(call: Called) -> dict[str, Any]:
        if call.excerpt == "odd":
            raise ValueError("no such text can be stored")
        return attempt(call)

    monkeypatch.setattr(push_results, "_attempt", picky)
    endpoint.respond = lambda call: answer(
        500 if call.body == b"bad" else 200, b"odd" if call.body != b"good" else b""
    )
    for payload in ("odd", "good", "bad", "good"):
        await pushing.broadcast(payload)
    await came(pushing, {"DELIVERED": 3, "QUEUED": 1})
    assert {one["excerpt"] for one in await attempts(pushing)} == {None}
    assert _sum(pushing, "push_unexpected_total") >= 1


async def test_a_definition_that_cannot_be_read_stops_its_own_lane_only(
    world: World, endpoint: Endpoint
) -> None:
    for name in ("broken", "h"):
        await world.consumer(name, callbackUrl=endpoint.url, token="t")
    await _settings(world, "broken", "{no json")
    engine = PushEngine(world.runtime)
    task = asyncio.create_task(engine.run())
    await until(lambda: "c/h" in engine.consumers)
    await world.broadcast()
    await came_of(world, "h", {"DELIVERED": 1})
    health = (await world.http.get("/health/ready")).json()
    assert (health["status"], health["failing"]) == ("ready", ["definition c/broken"])
    await _settings(world, "broken", "{}")

    async def served() -> bool:
        world.runtime.waiters.ring(())
        return "c/broken" in engine.consumers

    await until(served)
    assert (await world.http.get("/health/ready")).json()["failing"] == []
    engine.stop()
    await task


async def _settings(world: World, consumer: str, text: str) -> None:
    def change(tx: Tx) -> None:
        row = tx.one("get_consumer", channel_id="c", consumer_id=consumer)
        assert row is not None
        values = {
            name: row[name]
            for name in (
                "seq",
                "name",
                "token",
                "previous_token",
                "callback_url",
                "kind",
                "max_retries",
                "secrets",
                "paused",
                "disabled_us",
                "disabled_reason",
                "failing_since_us",
            )
        }
        tx.run("update_consumer", **values, settings=text, updated=row["updated_us"] + 1)

    await world.runtime.database.write(change)


async def came_of(world: World, consumer: str, expected: dict[str, int]) -> None:
    async def counted() -> bool:
        world.runtime.waiters.ring(())
        rows = (await world.http.get("/_status")).json()["consumers"]
        (row,) = [row for row in rows if row["consumer"] == consumer]
        return {state: n for state, n in row["jobs"].items() if n} == expected

    await until(counted)


async def test_an_archive_that_is_gone_stops_retention_only_until_it_is_back(
    world: World, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    maintenance = Maintenance(world.runtime, Keep(messages_s=DAY), Archive(folder, "n"))
    await world.broadcast()
    await world.lease("complete", jobs=held(*await world.claim()))
    clock.advance(2 * DAY)
    shutil.rmtree(folder)
    await world.broadcast()
    await world.claim(lease=5)
    clock.advance(6)
    for _ in range(3):
        await maintenance.tick()
    assert len(await world.queued()) == 1, "leases end, whatever the archive does"
    assert (await world.http.get("/health/ready")).json()["failing"] == ["retention"]
    (failing,) = (await world.http.get("/_status")).json()["failing"]
    assert (failing["part"], failing["tries"]) == ("retention", 1)
    assert str(folder) in failing["reason"]
    assert 'jobs_part_failing{part="retention"} 1' in await text_of(world, "jobs_part_failing")
    clock.advance(1)
    await maintenance.tick()
    clock.advance(1)
    await maintenance.tick()
    assert 'jobs_part_failures_total{part="retention"} 2' in await text_of(
        world, "jobs_part_failures_total"
    ), "each failure doubles the pause"
    folder.mkdir()
    clock.advance(1)
    await maintenance.tick()
    assert (await world.http.get("/health/ready")).json()["failing"] == []
    assert len(list(folder.glob("date=*/part-*"))) == 1
    assert 'jobs_part_failing{part="retention"} 0' in await text_of(world, "jobs_part_failing")
    assert len([one for one in caplog.records if one.levelno >= logging.WARNING]) == 1


def test_a_part_is_tried_again_after_longer_and_longer_pauses(clock: ManualClock) -> None:
    parts = Parts(Metrics(), clock)
    pauses = []
    for _ in range(9):
        pauses.append(parts.failed("odd", ValueError("x")))
        clock.advance(pauses[-1])
        assert parts.wait_s("odd") == 0
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    away = [parts.failed("away", DatabaseUnavailableError("x")) for _ in range(4)]
    assert away == [1, 1, 1, 1]
    reset = [parts.failed("link", ConnectionResetError()) for _ in range(5)]
    assert reset == [1, 2, 4, 5, 5]


@pytest.mark.parametrize("payload", ["[1, 2", '{"a": 1}', '["x"]', "[" * 5000, OTHERS % 1])
async def test_a_notice_of_a_stranger_wakes_everybody_and_ends_nothing(
    postgres_url: str, payload: str, service_on_postgres: Callable[[str], Any]
) -> None:
    async with service_on_postgres(postgres_url) as (heard, notify):
        await notify(payload)
        await until(lambda: heard)
        assert heard.pop() == ([1] if payload == OTHERS % 1 else [])
        await notify(OTHERS % 2)
        await until(lambda: heard)
        assert heard.pop() == [2]


@pytest.fixture
def service_on_postgres() -> Callable[[str], Any]:
    """A database that listens; what it heard since, and a stranger who notifies."""
    import contextlib

    import psycopg

    from headrace.jobs.store import open_database

    @contextlib.asynccontextmanager
    async def made(url: str) -> AsyncIterator[Any]:
        database = open_database(url, threads=1)
        heard: list[list[int]] = []
        database.on_ring(lambda seqs: heard.append(list(seqs)))
        await database.start()
        heard.clear()

        async def notify(payload: str) -> None:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as stranger:
                await stranger.execute("SELECT pg_notify('headrace_jobs', %s)", (payload,))

        try:
            yield heard, notify
        finally:
            await database.close()

    return made


@pytest.mark.parametrize("body", ["[" * 100_000, '{"a":' * 100_000, '{"jobs":' + "[" * 50_000])
@pytest.mark.one_database
async def test_json_nested_without_end_is_refused_as_any_other_nonsense(
    world: World, body: str
) -> None:
    await world.broadcast()
    (job,) = await world.queued()
    base = "/channel/c/consumer/k"
    for method, path in (
        ("POST", f"/v2{base}/jobs/claim"),
        ("POST", f"/v2{base}/jobs/fail"),
        ("PATCH", f"/v2{base}"),
        ("POST", f"{base}/job/{job['ID']}"),
    ):
        response = await world.http.request(method, path, content=body, headers=PULL)
        assert response.status_code == 400, path


@pytest.mark.parametrize(
    "context",
    [
        {"message": "Future exception was never retrieved", "exception": ssl.SSLError("no")},
        {"message": "Fatal error on SSL protocol", "exception": RuntimeError("it is closed")},
        {"message": "Task exception was never retrieved", "exception": KeyError("ours")},
    ],
)
async def test_a_handshake_that_fails_after_its_call_is_no_error_of_the_service(
    context: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tell_of_loop(asyncio.get_running_loop(), context)
    errors = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(errors) == ("Task" in context["message"])


async def test_a_message_published_while_a_consumer_is_deleted_is_stored(world: World) -> None:
    for _ in range(8):
        await world.consumer("gone", type="pull", token="t")
        version = (await world.http.get("/v2/channel/c/consumer/gone")).headers["ETag"]
        answers = await asyncio.gather(
            *(
                world.http.post("/channel/c/broadcast", content=b"x", headers=PRODUCER)
                for _ in range(6)
            ),
            world.http.delete("/channel/c/consumer/gone", headers={"If-Match": version}),
        )
        assert [answer.status_code for answer in answers] == [201] * 6 + [204]


@pytest.mark.parametrize("fails", ["_check_secrets", "make_once"])
async def test_a_start_that_fails_closes_the_database(
    fails: str, service_on: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Runtime if fails == "_check_secrets" else runtime_module, fails, fail)
    runtime = service_on()
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await runtime.start()
    with pytest.raises(DatabaseUnavailableError, match="closed"):
        await runtime.database.read(lambda tx: None)
