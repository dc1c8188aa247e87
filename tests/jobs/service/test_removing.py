"""What ends: channels are drained and deleted, consumers deleted with their jobs or without."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.cli import main
from headrace.jobs import limits
from headrace.jobs.client import AsyncJobsClient
from headrace.jobs.errors import JobsError
from headrace.jobs.http.app import ENDPOINTS
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.service import removing
from headrace.jobs.service.publishing import publishing
from jobs_world import FILLED, PRODUCER, PULL, World, held
from waiting import until


async def delete(world: World, path: str, expect: int = 204, /, **query: str) -> Any:
    version = (await world.http.get(path)).headers["etag"]
    answer = await world.http.delete(
        path, params=query, headers={"If-Match": version, "Accept": "application/json"}
    )
    assert answer.status_code == expect, answer.text
    return answer.json() if answer.content else None


async def channel(world: World) -> Any:
    return (await world.http.get("/v2/channel/c")).json()


async def sweep(world: World) -> int:
    """Remove all that was deleted. Returns in how many slices."""
    slices = 0
    while await world.runtime.database.write(removing.remove_some):
        slices += 1
    return slices


async def counts(world: World, consumer: str) -> dict[str, int]:
    body = (await world.http.get(f"/v2/channel/c/consumer/{consumer}")).json()
    return {state: n for state, n in body["jobs"].items() if n}


async def test_a_channel_that_is_drained_takes_no_more_and_delivers_what_it_has(
    world: World,
) -> None:
    await world.broadcast()
    answer = await world.http.patch("/v2/channel/c", json={"draining": True})
    assert (answer.json()["draining"], answer.json()["jobs"]["QUEUED"]) == (True, 1)
    refused = await world.http.post("/v2/channel/c/messages", content=b"x", headers=PRODUCER)
    assert (refused.status_code, refused.json()["code"]) == (409, "channel_draining")
    await world.broadcast(expect=409)
    with pytest.raises(Exception, match="being drained"):
        await world.runtime.database.write(lambda tx: publishing.feed(tx, "c", [], 1))
    (job,) = await world.claim()
    await world.lease("complete", jobs=held(job))
    assert (await channel(world))["jobs"]["DELIVERED"] == 1
    await world.http.patch("/v2/channel/c", json={"draining": False})
    await world.broadcast()
    assert (await world.http.patch("/v2/channel/none", json={"draining": True})).status_code == 404


async def test_a_channel_is_deleted_with_all_that_hangs_on_it_and_its_name_is_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 3)
    for _ in range(7):
        await world.broadcast()
    await world.broadcast(X_Broker_Scheduled_For="2999-01-01T00:00:00Z")
    problem = await delete(world, "/channel/c", 409)
    assert (problem["code"], problem["field"]) == ("has_jobs", "discard")
    assert "7 jobs wait, 0 run and 1 messages are scheduled" in problem["message"]
    assert (await delete(world, "/channel/c", 400, discard="maybe"))["field"] == "discard"
    detail = await channel(world)
    assert (detail["consumers"], detail["messages"], detail["scheduled"]) == (1, 8, 1)
    await delete(world, "/channel/c", discard="true")
    await world.broadcast(expect=404)
    assert (await world.http.get("/channel/c")).status_code == 404
    assert (await world.http.get("/channels")).json()["Result"] == []
    await world.put("/channel/c", token="ct")
    await world.consumer("k", type="pull", token="kt")
    await world.broadcast()
    assert await sweep(world) >= 6
    assert (await channel(world))["messages"] == 1
    assert await counts(world, "k") == {"QUEUED": 1}
    kinds = [one["kind"] for one in (await world.http.get("/v2/events")).json()["events"]]
    assert kinds == ["channel_deleted"]

    def left(tx: Any) -> tuple[Any, bool]:
        return tx.one("last_job")["seq"], bool(tx.one("next_upkeep_us")["removed"])

    assert (await world.runtime.database.read(left))[1] is False


async def test_what_was_deleted_answers_under_no_name_until_it_is_removed(world: World) -> None:
    await world.put("/channel/d", token="dt")
    await world.broadcast()

    def read(tx: Any) -> list[int]:
        found = tx.one("get_channel", channel_id="c"), tx.one("get_producer", producer_id="p")
        return [row["seq"] for row in found]

    seqs = await world.runtime.database.read(read)
    channel_id, producer_id = (f"{name}~{seq}" for name, seq in zip("cp", seqs, strict=True))
    await delete(world, "/channel/c", discard="true")
    for endpoint in ENDPOINTS:
        if "{channelId}" in endpoint.path:
            path = endpoint.path.format(**{**FILLED, "channelId": channel_id})
            answer = await world.http.request(
                endpoint.method, path, headers={**PRODUCER, **PULL}, json={}
            )
            assert answer.status_code >= 400, (endpoint.method, path, answer.text)
    for path in ("broadcast", "messages", "consumers"):
        method = "POST" if path == "broadcast" else "GET"
        asked = f"/channel/{channel_id}/{path}"
        answer = await world.http.request(method, asked, content=b"x", headers=PRODUCER)
        assert answer.status_code == 404, answer.text
    told = await world.http.patch("/v2/channel/d", json={"events_channel": channel_id})
    assert told.status_code in (400, 404), told.text
    await delete(world, "/producer/p")
    assert (await world.http.get(f"/producer/{producer_id}")).status_code == 404
    headers = {"X-Broker-Producer-ID": producer_id, "X-Broker-Channel-Token": "dt"}
    refused = await world.http.post(
        "/channel/d/broadcast", content=b"x", headers={**PRODUCER, **headers}
    )
    assert refused.status_code == 401


async def test_a_producer_is_deleted_and_what_it_published_stays(world: World) -> None:
    await world.broadcast(X_Broker_Message_ID="m")
    await delete(world, "/producer/p")
    await world.broadcast(expect=401)
    assert (await world.http.get("/channel/c/message/m")).json()["ProducedBy"] == "p"
    assert len(await world.claim()) == 1
    await Maintenance(world.runtime).retain()
    assert (await world.http.get("/channel/c/message/m")).status_code == 200
    await world.put("/producer/p", token="pt")
    await world.broadcast()
    missing = await world.http.delete("/producer/none", headers={"If-Match": "1"})
    assert missing.status_code == 404


async def test_deleting_a_consumer_says_what_waits_and_moves_it_to_another_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 3)
    path = "/channel/c/consumer/k"
    for number in range(8):
        await world.broadcast(X_Broker_Ordering_Key="a" if number % 2 else "")
    (first, second, *_) = await world.claim(2)
    problem = await delete(world, path, 409, discard="false")
    assert problem["code"] == "has_jobs"
    assert "6 jobs wait and 2 run" in problem["message"]
    await world.consumer("n", type="pull", token="kt")
    await world.broadcast()
    assert (await delete(world, path, 404, move_to="none"))["field"] == "move_to"
    assert (await delete(world, path, 400, move_to="k"))["code"] == "same_consumer"
    assert (await delete(world, path, 409, move_to="n"))["code"] == "running"
    await world.lease("complete", jobs=held(first))
    await world.lease("fail", jobs=[{**held(second)[0], "dead": True}])
    before = {job["id"] for job in await found(world, "k") if job["state"] != "DELIVERED"}
    assert len(before) == 8, "one of them is of a message that the other has, too"
    await delete(world, path, move_to="n")
    assert (await delete(world, "/channel/c/consumer/n", 409))["code"] == "moving"
    assert await sweep(world) >= 4
    assert await counts(world, "n") == {"QUEUED": 7, "DEAD": 1}
    shown = {job["id"]: job for job in await found(world, "n")}
    assert len(before & set(shown)) == 7
    assert (await world.http.get(f"/v2{path}")).status_code == 404
    done = []
    while jobs := await world.claim(5, consumer="n"):
        keyed = [job for job in jobs if job["message"].get("ordering_key")]
        assert len(keyed) <= 1, "the order of a key is kept"
        done += [int(job["id"]) for job in keyed]
        await world.lease("complete", consumer="n", jobs=held(*jobs))
    assert done == sorted(done)
    assert await counts(world, "n") == {"DELIVERED": 7, "DEAD": 1}
    await delete(world, "/channel/c/consumer/n", discard="false")


async def found(world: World, consumer: str) -> list[dict[str, Any]]:
    answer = await world.http.get("/v2/channel/c/jobs", params={"consumer": consumer})
    jobs: list[dict[str, Any]] = answer.json()["jobs"]
    return jobs


async def test_a_client_waits_for_jobs_that_are_on_their_way_and_for_those_that_run(
    world: World, address: str
) -> None:
    for _ in range(3):
        await world.broadcast()
    for name in ("n", "o"):
        await world.consumer(name, type="pull", token="kt")
    told: list[str] = []
    heard = asyncio.Event()

    def tell(error: JobsError) -> None:
        told.append(f"{error.code}: {error.message}")
        heard.set()

    async with AsyncJobsClient(address) as client:
        await client.delete_consumer("c", "k", move_to="n")
        with pytest.raises(JobsError, match="moving") as refused:
            await client.delete_consumer("c", "n", move_to="o", wait_s=0)
        assert refused.value.status == 409
        deleting = asyncio.create_task(
            client.delete_consumer("c", "n", move_to="o", wait_s=60, on_wait=tell)
        )
        await heard.wait()
        await sweep(world)
        await deleting
        assert told[0] == (
            "moving: 3 jobs of a deleted consumer are still on their way to n: delete it when they are there"
        )
        await sweep(world)
        assert await counts(world, "o") == {"QUEUED": 3}


@pytest.mark.one_database
async def test_the_command_asks_with_what_hangs_on_it(
    world: World, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*words: str, expect: int = 0) -> str:
        code = await asyncio.to_thread(main, ["jobs", *words, "--url", address])
        said = capsys.readouterr()
        assert code == expect, said
        return said.out + said.err

    await world.broadcast()
    (job,) = await world.claim()
    await world.broadcast()
    await world.consumer("n", type="pull", token="kt")
    counted = "1 waiting, 1 running and 0 dead jobs"
    assert counted in await run("delete-consumer", "c", "k", "--dry-run")
    running = await run("delete-consumer", "c", "k", "--move-to", "n", "-f", expect=1)
    assert "1 job of c/k under way; `headrace jobs pause c k`" in running
    await world.http.patch("/v2/channel/c/consumer/k", json={"paused": True})
    waits = ("delete-consumer", "c", "k", "--move-to", "n", "-f", "--wait")
    late = await run(*waits, "10ms", expect=1)
    assert "c/k is as it was after 0.01 s: 1 jobs run" in late
    assert "Each ends when it is answered" in late
    assert "the same command goes on from there" in late
    asked: list[str] = []

    def decline(prompt: str) -> str:
        asked.append(prompt)
        return "n\n"

    monkeypatch.setattr("headrace.cli.shared.asking.read_line", decline)
    assert "nothing was changed" in await run("delete-consumer", "c", "k", expect=1)
    assert counted in asked[0]
    assert "takes no more messages: 1 waiting, 1 running" in await run("drain", "c")
    await world.broadcast(expect=409)
    said: list[str] = []

    def has_told() -> bool:
        said.append(capsys.readouterr().err)
        return "c/k waits: 1 jobs run" in "".join(said)

    deleting = asyncio.create_task(run(*waits, "5m"))
    await until(has_told, within=60)
    await world.lease("complete", jobs=held(job))
    assert "deleted" in await deleting
    await sweep(world)
    assert await counts(world, "n") == {"QUEUED": 1}
    waited = asyncio.create_task(run("drain", "c", "--wait"))
    (job,) = (await world.lease("claim", consumer="n", max=1, lease_seconds=30))["jobs"]
    await world.lease("complete", consumer="n", jobs=held(job))
    assert "0 waiting, 0 running" in await waited
    would = json.loads(await run("delete-channel", "c", "--dry-run", "--json"))
    assert (would["dry_run"], would["channel"]["messages"]) == (True, 2)
    assert await run("delete-channel", "c", "-f") == "c: deleted\n"
    assert await run("delete-producer", "p", "-f") == "p: deleted\n"
    assert "no such producer" in await run("delete-producer", "p", "-f", expect=1)
