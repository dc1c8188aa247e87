"""The short words the job tests are told in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2

from headrace.clock import ManualClock
from headrace.jobs.client import AsyncJobsClient
from headrace.jobs.http import create_app
from headrace.jobs.http.asgi import Gateway
from headrace.jobs.models import ClaimedJob, Consumer
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service import leases
from headrace.jobs.service.leases import Claim, Ending, Result
from headrace.jobs.service.publishing import publishing
from headrace.jobs.store import Tx
from jobs_contract import ContractTransport

__all__ = ["FILLED", "PRODUCER", "PULL", "World", "claim_of", "end_of", "http_of", "jobs_client"]

PRODUCER = {
    "X-Broker-Channel-Token": "ct",
    "X-Broker-Producer-ID": "p",
    "X-Broker-Producer-Token": "pt",
}
FILLED = {
    "channelId": "c",
    "consumerId": "k",
    "producerId": "p",
    "messageId": "m",
    "jobId": "1",
    "scheduleId": "s",
    "feedId": "f",
    "keyId": "0123456789abcdef",
}
"""A value for each name in the paths of the service's endpoints."""
PULL = {"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}


def http_of(runtime: Runtime, gateway: Gateway | None = None) -> httpx2.AsyncClient:
    """An HTTP client of a service in memory; an answer that is not as declared fails the test."""
    transport = ContractTransport(create_app(runtime, gateway))
    return httpx2.AsyncClient(transport=transport, base_url="http://jobs")


def jobs_client(runtime: Runtime, **settings: Any) -> AsyncJobsClient:
    """A client of ours of a service in memory."""
    transport = ContractTransport(create_app(runtime))
    return AsyncJobsClient("http://jobs", transport=transport, **settings)


async def claim_of(
    runtime: Runtime, consumer: Consumer, n: int, lease_s: float
) -> list[ClaimedJob]:
    """Up to ``n`` jobs, leased without a look at who asks."""
    return (await runtime.claim(Claim(lambda _: consumer, n, lease_s)))[1]


def end_of(tx: Tx, consumer: Consumer, endings: list[Ending], now: int) -> list[Result]:
    """End jobs without a look at who asks."""
    (results,) = leases.end(tx, [(consumer, endings, lambda: 0.5)], now)
    return results


@dataclass
class World:
    """A service and the requests that tests keep making."""

    http: httpx2.AsyncClient
    runtime: Runtime
    clock: ManualClock
    engine: PushEngine | None = None
    """What pushes, if a test started it."""

    async def define(self) -> None:
        await self.put("/producer/p", token="pt")
        await self.put("/channel/c", token="ct")
        await self.consumer("k", type="pull", token="kt")

    async def put(
        self, path: str, expect: int = 200, /, *, since: str = "", **form: str
    ) -> httpx2.Response:
        headers = {"If-Unmodified-Since": since} if since else {}
        response = await self.http.put(path, data=form or {"name": ""}, headers=headers)
        assert response.status_code == expect, response.text
        return response

    async def consumer(
        self, consumer_id: str, expect: int = 200, /, **form: str
    ) -> httpx2.Response:
        return await self.put(f"/channel/c/consumer/{consumer_id}", expect, **form)

    async def broadcast(
        self, payload: bytes | str = "x", expect: int = 201, **headers: str
    ) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = payload.encode() if isinstance(payload, str) else payload
        response = await self.http.post(
            "/channel/c/broadcast", content=content, headers={**PRODUCER, **named}
        )
        assert response.status_code == expect, response.text
        return response

    async def queued(self, limit: int | None = None, consumer: str = "k") -> list[dict[str, Any]]:
        query = "" if limit is None else f"?limit={limit}"
        response = await self.http.get(
            f"/channel/c/consumer/{consumer}/queued-jobs{query}", headers=PULL
        )
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["Result"]
        return found

    async def payloads(self, consumer: str = "k") -> list[str]:
        """Of the jobs that wait, in their order."""
        return [job["Message"]["Payload"] for job in await self.queued(100, consumer)]

    async def set_filter(self, expect: int = 200, /, **wanted: Any) -> Any:
        """Give the consumer ``k`` another filter; its answer."""
        path = "/v2/channel/c/consumer/k"
        response = await self.http.patch(path, json={"settings": {"filter": wanted}})
        assert response.status_code == expect, response.text
        return response.json()

    async def move(
        self, job: str, state: str, expect: int = 202, *, extra: Any = None, consumer: str = "k"
    ) -> httpx2.Response:
        body: dict[str, Any] = {"NextState": state}
        if extra is not None:
            body["IncrementalTimeout"] = extra
        response = await self.http.post(
            f"/channel/c/consumer/{consumer}/job/{job}", json=body, headers=PULL
        )
        assert response.status_code == expect, response.text
        return response

    async def state(self, job: str, consumer: str = "k") -> str:
        detail = await self.job(job, consumer)
        state: str = detail["state"]
        return state

    async def job(self, job: str, consumer: str = "k") -> dict[str, Any]:
        response = await self.http.get(f"/v2/channel/c/consumer/{consumer}/job/{job}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    async def lease(self, what: str, expect: int = 200, *, consumer: str = "k", **body: Any) -> Any:
        response = await self.http.post(
            f"/v2/channel/c/consumer/{consumer}/jobs/{what}", json=body, headers=PULL
        )
        assert response.status_code == expect, response.text
        return response.json()

    async def claim(
        self, n: int = 1, *, consumer: str = "k", lease: float = 30.0
    ) -> list[dict[str, Any]]:
        answer = await self.lease("claim", consumer=consumer, max=n, lease_seconds=lease)
        jobs: list[dict[str, Any]] = answer["jobs"]
        return jobs

    async def sweep(self, seconds: float = 0.0) -> leases.Swept:
        """Let time pass, then do what maintenance does."""
        self.clock.advance(seconds)
        now = self.runtime.now_us()
        await self.runtime.database.write(
            lambda tx: publishing.dispatch_due(tx, publishing.find_due(tx, now), now)
        )
        return await self.runtime.database.write(lambda tx: leases.expire_leases(tx, now))


def held(*jobs: dict[str, Any]) -> list[dict[str, str]]:
    """What names these claimed jobs in the leased API."""
    return [{"id": job["id"], "lease": job["lease"]} for job in jobs]
