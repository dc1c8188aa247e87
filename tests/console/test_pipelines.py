"""What the console shows of pipelines that tell the server how they are."""

from __future__ import annotations

from typing import Any

import pytest

import promtool
from headrace.api import pipelines as api
from headrace.api.pipelines import PipelineRecord, QueryRecord
from headrace.console.pipelines import PipelineReader
from headrace.errors import RequestTimeoutError

NOW = 1_000_000.0


def record(name: str = "orders", **changes: Any) -> PipelineRecord:
    query = QueryRecord(
        state="running",
        since=NOW - 60,
        error="a worker was lost",
        error_at=NOW - 50,
        failures=1,
        restarts=2,
        behind=40,
        rows_per_s=12.5,
        batch_s=0.5,
        last_batch=NOW - 5,
        batches=7,
        rows=70,
        lost=3,
    )
    given = {"graph": ("orders  source, stream ORDERS",), "queries": {"out": query}, **changes}
    return PipelineRecord(name, "host", 17, NOW - 100, NOW - 3, **given)


async def tell(js: Any, **told: PipelineRecord) -> None:
    bucket = await js.create_key_value(api.BUCKET, direct=True)
    for key, each in told.items():
        await bucket.put(key, api.encode(each))


async def test_pipelines_are_shown_with_what_they_told_and_silence_is_said(world: Any) -> None:
    watcher = world.console.sources.watcher
    await tell(world.js, orders=record(), gone=record("gone", ended=NOW - 1))
    bucket = await world.js.key_value(api.BUCKET)
    await bucket.put("nonsense", b"{")
    watcher._clock = lambda: NOW
    await watcher.refresh()
    seen = await world.get("/pipelines")
    assert seen["problem"] == ""
    gone, orders = seen["pipelines"]
    assert (gone["key"], gone["silent_s"]) == ("gone", None)
    assert (orders["name"], orders["host"], orders["silent_s"]) == ("orders", "host", 3.0)
    assert orders["graph"] == ["orders  source, stream ORDERS"]
    (out,) = orders["queries"]
    assert (out["state"], out["behind"], out["restarts"]) == ("running", 40, 2)
    history = await world.get("/history?of=pipeline/orders/out")
    assert (history["behind"][-1], history["rows_per_s"][-1]) == (40, 12.5)

    watcher._clock = lambda: NOW + 100
    await watcher.refresh()
    assert (await world.get("/pipelines"))["pipelines"][1]["queries"][0]["state"] == "silent"
    page = (await world.http.get("/metrics")).text
    promtool.check("metrics", page=page)
    of = 'pipeline="orders",key="orders"'
    assert f"headrace_console_pipeline_silent_seconds{{{of}}} 103\n" in page
    assert 'silent_seconds{pipeline="gone"' not in page, "it has ended, and has nothing to say"
    of = f'{of},query="out"'
    assert f'headrace_console_pipeline_state{{{of},state="silent"}} 1\n' in page
    assert f'headrace_console_pipeline_state{{{of},state="running"}} 0\n' in page
    assert f"headrace_console_pipeline_behind_messages{{{of}}} 40\n" in page
    assert f"headrace_console_pipeline_restarts_total{{{of}}} 2\n" in page

    await bucket.purge("orders")
    await watcher.refresh()
    assert [each["key"] for each in (await world.get("/pipelines"))["pipelines"]] == ["gone"]


async def test_a_bucket_is_read_only_when_it_has_changed_and_a_failure_is_left_alone(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tell(world.js, orders=record())
    streams = {each.config.name: each async for each in world.js.streams()}
    now = NOW
    reader = PipelineReader(world.js, lambda: now)
    asked = 0
    stream = world.js.stream

    async def counted(name: str) -> Any:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise RequestTimeoutError("no answer")
        return await stream(name)

    monkeypatch.setattr(world.js, "stream", counted)
    for _ in range(3):
        assert set(await reader.read(streams)) == {"orders"}
    assert asked == 1
    await tell(world.js, other=record("other"))
    streams = {each.config.name: each async for each in world.js.streams()}
    assert set(await reader.read(streams)) == {"orders"}, "it was read a moment ago"
    now += 6
    assert set(await reader.read(streams)) == {"orders", "other"}
    await tell(world.js, third=record("third"))
    streams = {each.config.name: each async for each in world.js.streams()}
    now += 6
    assert set(await reader.read(streams)) == {"orders", "other"}
    assert reader.problem == "Pipelines cannot be read: no answer"
    now += 6
    assert len(await reader.read(streams)) == 2
    assert asked == 3
    now += 60
    assert len(await reader.read(streams)) == 3
    assert reader.problem == ""
