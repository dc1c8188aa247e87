"""A console, what it shows, and how its pages ask."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx2

from headrace.api import pipelines
from headrace.api.pipelines import PipelineRecord, QueryRecord
from headrace.client import Connection, JetStream
from headrace.console import ConsoleServer
from jobs_world import PULL

__all__ = [
    "ATTACK",
    "SUBJECT_ATTACK",
    "World",
    "bury",
    "fill",
    "kill_a_job",
    "tell_a_pipeline",
]

ATTACK = "<img/src=x/onerror=window.attacked=1><script>window.attacked=2</script>"
"""What stands in every text that a stranger may choose."""

SUBJECT_ATTACK = "in.<img/src=x/onerror=window.attacked=3>"


@dataclass
class World:
    """A running console: ``http`` asks it as its pages do."""

    connection: Connection
    js: JetStream
    console: ConsoleServer
    http: httpx2.AsyncClient

    async def get(self, path: str, status: int = 200) -> Any:
        response = await self.http.get(f"/api{path}")
        assert response.status_code == status, response.text
        return response.json()

    async def send(self, method: str, path: str, status: int = 200, **body: Any) -> Any:
        response = await self.http.request(
            method, f"/api{path}", json=body, headers={"x-headrace-console": "1"}
        )
        assert response.status_code == status, response.text
        return response.json()


async def fill(js: JetStream) -> None:
    """Streams, consumers, buckets and objects, with an attack in every text."""
    metadata = {"note": ATTACK}
    stream = await js.create_stream(
        name="ORDERS",
        subjects=("orders.>", "in.>"),
        description=ATTACK,
        metadata=metadata,
        allow_direct=True,
    )
    for number in range(30):
        await js.publish(f"orders.{number % 3}", json.dumps({"n": number}).encode())
    await js.publish(SUBJECT_ATTACK, ATTACK.encode(), headers={"X-Note": ATTACK})
    await stream.create_consumer(durable_name="work", description=ATTACK, metadata=metadata)
    await stream.create_consumer(
        durable_name="pinned",
        priority_groups=("p",),
        priority_policy="pinned_client",
        priority_timeout=60.0,
    )
    bucket = await js.create_key_value("CONF", history=5, description=ATTACK)
    await bucket.put("key", ATTACK.encode())
    await bucket.put("other", b'{"big": 12345678901234567890}')
    store = await js.create_object_store("FILES", description=ATTACK)
    await store.put(f"notes/{ATTACK}", b"content", description=ATTACK)


async def bury(js: JetStream, subjects: tuple[str, ...], by: str = "billing") -> None:
    """Letters as our clients write them, in stream DEAD, with an attack in every text."""
    for number, subject in enumerate(subjects, 1):
        await js.publish(
            "dead.letters",
            f"{ATTACK} {number}".encode(),
            headers={
                "Headrace-Failure": f"ValueError('{ATTACK}')",
                "Headrace-Consumer": by,
                "Headrace-Subject": subject,
                "Headrace-Stream": "ORDERS",
                "Headrace-Sequence": str(number),
                "Headrace-Attempts": "3",
                "Customer": f"{number} {ATTACK}",
            },
        )


async def tell_a_pipeline(js: JetStream) -> None:
    """A pipeline that has told how it is, with an attack in every text."""
    query = QueryRecord(state=ATTACK, why=ATTACK, error=ATTACK, behind=1)
    told = PipelineRecord(
        ATTACK, ATTACK, 1, 0.0, 1.0, graph=(ATTACK,), queries={"out": query, ATTACK: query}
    )
    bucket = await js.create_key_value(pipelines.BUCKET, direct=True)
    await bucket.put("orders", pipelines.encode(told))


async def kill_a_job(
    service: httpx2.AsyncClient, *, publish: bool = True, reason: str = "broken"
) -> str:
    """Claim a job and let it die; its id."""
    if publish:
        headers = {
            "X-Broker-Channel-Token": "ct",
            "X-Broker-Producer-ID": "p",
            "X-Broker-Producer-Token": "pt",
        }
        assert (
            await service.post("/channel/c/broadcast", content=b"x", headers=headers)
        ).status_code == 201
    path = "/v2/channel/c/consumer/k/jobs"
    claimed = await service.post(f"{path}/claim", json={"max": 1}, headers=PULL)
    (job,) = claimed.json()["jobs"]
    body = {"jobs": [{"id": job["id"], "lease": job["lease"], "dead": True, "reason": reason}]}
    failed = await service.post(f"{path}/fail", json=body, headers=PULL)
    assert failed.status_code == 200, failed.text
    return str(job["id"])
