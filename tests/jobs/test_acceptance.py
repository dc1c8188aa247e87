"""The predecessor's integration scenario, told to a service in a process of its own."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headrace.cli import main
from headrace.jobs.models import http_date
from jobs_endpoint import Call, Endpoint, answer
from waiting import elapse, until

CONFIG = """
rational_delay_seconds = 0.5
connection_timeout_seconds = 1.5
max_retries = 5
retry_delays_seconds = [0.05]
schedule_min_delay_seconds = 1
allow_networks = ["127.0.0.0/8"]
drain_seconds = 5
"""
SECRET = b"a secret of the gateway, long enough"
PRODUCE = {
    "X-Broker-Channel-Token": "at",
    "X-Broker-Producer-ID": "p",
    "X-Broker-Producer-Token": "pt",
}


@asynccontextmanager
async def service(directory: Path, url: str, extra: str = "") -> AsyncIterator[str]:
    """`headrace jobs serve` on a free port; ends with status 0 when asked to."""
    config = directory / f"jobs-{len(extra)}.toml"
    config.write_text(CONFIG + extra)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "jobs", "serve"),
        *("--config", str(config), "--port", "0", "--database", url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert line.startswith("headrace jobs: listening on http://127.0.0.1:"), line
        yield line.split()[-1]
    finally:
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors, errors.decode()


@dataclass
class Hooks:
    """Five endpoints in one: `/hook/0` to `/hook/4`."""

    failures_left: int = 0
    broken: set[str] = field(default_factory=set)

    def __call__(self, call: Call) -> bytes:
        if call.target in self.broken:
            return answer(404)
        if self.failures_left:
            self.failures_left -= 1
            return answer(404)
        return answer(200)


class Scenario:
    """The steps; each leaves the service as the next expects it."""

    def __init__(self, http: httpx2.AsyncClient, endpoint: Endpoint, hooks: Hooks) -> None:
        self.http = http
        self.endpoint = endpoint
        self.hooks = hooks

    async def put(self, path: str, **form: str) -> dict[str, Any]:
        response = await self.http.put(path, data=form)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        changed = datetime.fromisoformat(body["ChangedAt"]).astimezone(UTC).replace(microsecond=0)
        assert changed == parsedate_to_datetime(response.headers["Last-Modified"])
        precondition = http_date(int(changed.timestamp()) * 1_000_000)
        again = await self.http.put(path, data=form, headers={"If-Unmodified-Since": precondition})
        assert again.status_code == 200, again.text
        return body

    async def definitions(self) -> None:
        await self.put("/producer/p", token="pt")
        await self.put("/channel/a", token="at")
        await self.put("/channel/b", token="bt")
        for number in range(5):
            url = f"http://127.0.0.1:{self.endpoint.port}/hook/{number}"
            await self.put(f"/channel/a/consumer/h{number}", token=f"h{number}t", callbackUrl=url)
        for number in range(2):
            await self.put(f"/channel/b/consumer/k{number}", token="kt", type="pull")
        for given, shown in (("", "push"), ("push", "push"), ("pull", "pull")):
            body = await self.put(
                f"/channel/b/consumer/t{given}", type=given, callbackUrl="http://127.0.0.1:9/"
            )
            assert body["Type"] == shown
        wrong = await self.http.put("/channel/b/consumer/w", data={"type": "wrongType"})
        assert wrong.status_code == 400

    async def broadcast(
        self, channel: str = "a", payload: str = "{}", **headers: str
    ) -> httpx2.Response:
        own = {
            **PRODUCE,
            "X-Broker-Channel-Token": f"{channel}t",
            "Content-Type": "application/json",
        }
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(
            f"/channel/{channel}/broadcast", content=payload, headers={**own, **named}
        )

    async def throughput(self, count: int) -> None:
        self.hooks.failures_left = 2
        gate = asyncio.Semaphore(50)

        async def send(number: int) -> None:
            async with gate:
                assert (await self.broadcast(payload=f'{{"n": {number}}}')).status_code == 201

        await asyncio.gather(*(send(number) for number in range(count)))
        calls = await self.endpoint.wait_for(count * 5 + 2, 30)
        await elapse(0.3, "a call too many would come now")
        assert len(calls) == count * 5 + 2
        assert {call.headers["content-type"] for call in calls} == {"application/json"}
        assert {call.body for call in calls} == {b'{"n": %d}' % number for number in range(count)}

    async def queued(self, consumer: str, limit: int) -> list[str]:
        tokens = {"X-Broker-Channel-Token": "bt", "X-Broker-Consumer-Token": "kt"}
        path = f"/channel/b/consumer/{consumer}/queued-jobs?limit={limit}"
        return [job["ID"] for job in (await self.http.get(path, headers=tokens)).json()["Result"]]

    async def pull(self) -> None:
        for _ in range(40):
            assert (await self.broadcast("b")).status_code == 201
        tokens = {"X-Broker-Channel-Token": "bt", "X-Broker-Consumer-Token": "kt"}
        assert len(await self.queued("k0", 25)) == 25
        jobs = await self.queued("k1", 25)
        path = "/channel/b/consumer/k1/job/"
        for job in jobs:
            moved = {"NextState": "INFLIGHT", "IncrementalTimeout": 1}
            assert (await self.http.post(path + job, json=moved, headers=tokens)).status_code == 202
        assert (len(await self.queued("k0", 25)), len(await self.queued("k1", 25))) == (25, 15)
        done = await self.http.post(path + jobs[0], json={"NextState": "DELIVERED"}, headers=tokens)
        assert done.status_code == 202
        back = await self.http.post(path + jobs[0], json={"NextState": "INFLIGHT"}, headers=tokens)
        assert back.status_code == 400
        assert len(await self.queued("k1", 40)) == 15
        # stopTimeout 1.75 s, rationalDelay 0.5 s, IncrementalTimeout 1 s
        await self.until(lambda: self.queued("k1", 40), 39)

    async def until(self, read: Any, count: int, seconds: float = 10) -> Any:
        async def are_there() -> Any:
            found = await read()
            return [found] if len(found) == count else []

        return (await until(are_there, f"never {count} of them", within=seconds))[0]

    async def dead(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.http.get("/channel/a/consumer/h0/dlq")).json()[
            "DeadJobs"
        ]
        return found

    async def kill_one(self) -> dict[str, Any]:
        """Let one job of the first endpoint die; exactly six calls."""
        self.hooks.broken.add("/hook/0")
        before = sum(call.target == "/hook/0" for call in self.endpoint.calls)
        assert (await self.broadcast()).status_code == 201
        (job,) = await self.until(self.dead, 1)
        assert sum(call.target == "/hook/0" for call in self.endpoint.calls) == before + 6
        self.hooks.broken.clear()
        found: dict[str, Any] = job
        return found

    async def dead_letters(self) -> None:
        await self.kill_one()
        counted = (await self.http.get("/dlq-status")).json()["consumers"]
        assert [(one["consumerId"], one["deadCount"]) for one in counted] == [("h0", 1)]
        assert (
            'jobs_dead_total{channel="a",consumer="h0",cause="failed"} 1'
            in (await self.http.get("/metrics")).text
        )
        calls = len(self.endpoint.calls)
        requeue = await self.http.post("/channel/a/consumer/h0/dlq", data={"requeue": "h0t"})
        assert requeue.status_code == 202
        await self.endpoint.wait_for(calls + 1)
        assert await self.dead() == []
        job = (await self.kill_one())["JobRequeueURL"].removesuffix("/requeue-dead-job")
        tokens = {"X-Broker-Channel-Token": "at", "X-Broker-Consumer-Token": "h0t"}
        assert (await self.http.delete(job, headers=tokens)).status_code == 204
        purge = await self.http.request("DELETE", "/channel/a/consumer/h0/dlq", headers=tokens)
        assert purge.json() == {"deletedCount": 0}

    async def scheduled(self) -> None:
        def at(seconds: float) -> str:
            return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()

        assert (
            await self.broadcast(X_Broker_Scheduled_For="2025/12/31 23:59:59")
        ).status_code == 400
        assert (await self.broadcast(X_Broker_Scheduled_For=at(0.5))).status_code == 412
        calls = len(self.endpoint.calls)
        due = time.time() + 1.5
        made = [await self.broadcast(X_Broker_Scheduled_For=at(1.5)) for _ in range(3)]
        assert {response.status_code for response in made} == {201}
        counts = (await self.http.get("/channel/a/messages-status")).json()["counts"]
        assert counts["SCHEDULED_SCHEDULED"]["Count"] == 3
        await self.endpoint.wait_for(calls + 15)
        assert time.time() >= due
        for response in made:
            shown = (await self.http.get(response.headers["location"])).json()
            assert shown["status"] == "DISPATCHED"


async def prune(directory: Path, url: str) -> str:
    archive = directory / "archive"
    archive.mkdir()
    config = directory / "prune.toml"
    config.write_text(f"keep_messages_days = 0\narchive_directory = '{archive}'\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "jobs", "prune", "--database", url),
        *("--config", str(config)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def test_the_whole_scenario(database_url: str, tmp_path: Path) -> None:
    hooks = Hooks()
    async with (
        Endpoint(hooks) as endpoint,
        service(tmp_path, database_url) as address,
        httpx2.AsyncClient(base_url=address, timeout=10) as http,
    ):
        scenario = Scenario(http, endpoint, hooks)
        await scenario.definitions()
        await scenario.throughput(100)
        await asyncio.gather(scenario.pull(), scenario.scheduled())
        await scenario.dead_letters()
        before = (await http.get("/channel/a/messages-status")).json()["counts"]["DISPATCHED"][
            "Count"
        ]
        assert "removed" in await prune(tmp_path, database_url)
        after = (await http.get("/channel/a/messages-status")).json()["counts"]["DISPATCHED"][
            "Count"
        ]
        assert (before, after) == (105, 0)
        assert list((tmp_path / "archive").rglob("*.jsonl"))
        assert len(await scenario.queued("k0", 40)) == 40, "what is not finished stays"
        await signed_requests(tmp_path, database_url)


async def signed_requests(directory: Path, url: str) -> None:
    """A second service on the same database, behind the gateway."""
    extra = f'[gateway]\nsecrets = ["{base64.b64encode(SECRET).decode()}"]\n'
    async with (
        service(directory, url, extra) as address,
        httpx2.AsyncClient(base_url=address) as http,
    ):

        async def post(at: int, key: bytes = SECRET) -> int:
            mac = hmac.new(key, f"{at}.x".encode(), hashlib.sha256).hexdigest()
            headers = {**PRODUCE, "X-Broker-Signature": f"t={at},v1={mac}"}
            return (
                await http.post("/channel/a/broadcast", content=b"x", headers=headers)
            ).status_code

        now = int(time.time())
        assert (await http.get("/_status")).status_code == 200
        assert (
            await http.post("/channel/a/broadcast", content=b"x", headers=PRODUCE)
        ).status_code == 401
        assert await post(now, b"another key of enough length") == 403
        assert await post(now - 600) == 403
        assert await post(now) == 201


@pytest.mark.one_database
async def test_jobs_are_found_and_cancelled_from_the_command_line(
    database_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    logs_stay_as_they_were: None,
) -> None:
    async with service(tmp_path, database_url) as address:

        async def jobs(*arguments: str) -> str:
            status = await asyncio.to_thread(main, ["jobs", *arguments, "--url", address])
            shown = capsys.readouterr()
            assert status == 0, shown.err
            return shown.out

        channel, producer = tmp_path / "channel.token", tmp_path / "producer.token"
        channel.write_text("ct")
        producer.write_text("pt")
        await jobs("channel", "orders", "--token-file", str(channel))
        await jobs("producer", "p", "--token-file", str(producer))
        await jobs("consumer", "orders", "mailer", "--type", "pull")
        for number in (1, 2):
            login = ["--channel-token-file", str(channel), "--producer", "p"]
            login += ["--producer-token-file", str(producer)]
            await jobs("publish", "orders", "hello", "--id", f"m-{number}", *login)

        async def found(*filters: str) -> list[dict[str, Any]]:
            told: list[dict[str, Any]] = json.loads(
                await jobs("find", "orders", *filters, "--json")
            )
            return told

        (first,) = await found("--message", "m-1")
        assert (first["message"], first["consumer"], first["state"]) == ("m-1", "mailer", "QUEUED")
        header, *rows = (await jobs("find", "orders", "--consumer", "mailer")).splitlines()
        assert header.split() == [
            "JOB",
            "CONSUMER",
            "MESSAGE",
            "STATE",
            "SINCE",
            "CLAIMS",
            "LAST",
            "ERROR",
        ]
        assert ["m-2" in row for row in rows] == [True, False], "the newest first"
        everything = ("cancel", "orders", "--consumer", "mailer")
        assert (await jobs(*everything, "--dry-run")).startswith("would cancel 2 waiting")
        await jobs("cancel", "orders", "--job", first["id"], "-f")
        assert [each["id"] for each in await found("--state", "dead")] == [first["id"]]
        assert "no such jobs" in await jobs("find", "orders", "--older-than", "1h")
        await jobs(*everything, "-f")
        assert await found("--state", "queued") == []


WRONG = {
    "sqlite:///": ["serve", "--database", "mysql://h/d"],
    "admin_token": ["serve", "--host", "0.0.0.0"],
    "none.toml": ["serve", "--config", "none.toml"],
    "port": ["serve", "--port", "70000"],
}
"""What is said of what cannot be done."""


def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    logs_stay_as_they_were: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    for text, arguments in WRONG.items():
        assert main(["jobs", *arguments]) == 1, arguments
        check_line(capsys.readouterr().err, text)
    command = [sys.executable, "-m", "headrace", "jobs", *WRONG["none.toml"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    check_line(done.stderr, "none.toml")


def check_line(errors: str, text: str) -> None:
    assert text in errors
    assert len(errors.splitlines()) == 1, errors
