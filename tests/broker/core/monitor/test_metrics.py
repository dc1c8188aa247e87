"""The page for scrapers: every metric is documented, shaped as Prometheus reads it, and true."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

import guides
import headrace
import promtool
from headrace.api.roles import ROLE, SPARK_PROGRESS
from headrace.broker.core.jetstream.config.options import JetStreamOptions
from headrace.broker.core.monitor import metrics as metrics_module
from headrace.broker.core.monitor.metrics import METRICS
from headrace.broker.core.options import JetStreamLimits

MONITORING = guides.ROOT / "src" / "headrace" / "packaging" / "monitoring"
LINE = re.compile(r'^headrace_(\w+?)(\{(?:\w+="(?:[^"\\\n]|\\.)*",?)+\})? (-?[\d.e+-]+)$')


async def page(broker: headrace.Broker) -> dict[str, float]:
    async with httpx2.AsyncClient() as http:
        response = await http.get(f"{broker.monitor_url}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    for line in response.text.splitlines():
        if not line.startswith("#"):
            matched = LINE.match(line)
            assert matched is not None, line
            found[matched[1] + (matched[2] or "")] = float(matched[3])
    return found


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return {"store_dir": str(tmp_path / "store"), "port": 0, "monitor_port": 0}


async def test_the_numbers_are_those_of_streams_consumers_and_commits(
    settings: dict[str, Any],
) -> None:
    async with headrace.Broker(**settings) as broker, broker.connect() as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        consumer = await stream.create_consumer(durable_name="c")
        await stream.create_consumer(durable_name="q", metadata={ROLE: SPARK_PROGRESS})
        for number in range(5):
            await js.publish(f"s.{number}", b"x")
        for message in await consumer.fetch(2, max_wait=1.0):
            await message.ack_sync()
        await consumer.fetch(1, max_wait=1.0)
        found = await page(broker)
        of_stream, of_consumer = (
            '{account="$G",stream="S"}',
            '{account="$G",stream="S",consumer="c"}',
        )
        assert found["healthy"] == 1
        assert found["store_messages"] == found[f"stream_messages{of_stream}"] == 5
        assert found[f"stream_subjects{of_stream}"] == 5
        assert found[f"consumer_pending_messages{of_consumer}"] == 2
        assert found[f"consumer_ack_pending_messages{of_consumer}"] == 1
        assert found[f"consumer_delivered_messages_total{of_consumer}"] == 3
        assert found[f"consumer_shows_progress{of_consumer}"] == 0
        assert found['consumer_shows_progress{account="$G",stream="S",consumer="q"}'] == 1
        assert found["commit_seconds_count"] >= 5
        assert found['commit_seconds_bucket{le="+Inf"}'] == found["commit_seconds_count"]
        assert 0 < found["sync_seconds_sum"] <= found["commit_seconds_sum"]


async def test_a_pin_and_a_pause_are_seen(settings: dict[str, Any]) -> None:
    async with headrace.Broker(**settings) as broker, broker.connect() as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"])
        consumer = await stream.create_consumer(
            durable_name="c", priority_groups=["g"], priority_policy="pinned_client"
        )
        labels = '{account="$G",stream="S",consumer="c",group="g"}'
        assert (await page(broker))[f"consumer_pinned{labels}"] == 0
        await js.publish("s", b"x")
        await consumer.fetch(1, max_wait=1.0, group="g")
        await consumer.pause(60.0)
        found = await page(broker)
        assert found[f"consumer_pinned{labels}"] == 1
        assert found['consumer_paused{account="$G",stream="S",consumer="c"}'] == 1


async def test_what_is_too_many_is_counted(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "STREAMS_MAX", 2)
    monkeypatch.setattr(metrics_module, "CONSUMERS_MAX", 3)
    async with headrace.Broker(**settings) as broker, broker.connect() as nc:
        js = nc.jetstream()
        for name in ("A", "B", "C"):
            stream = await js.create_stream(name=name, subjects=[name.lower()])
            for number in range(2):
                await stream.create_consumer(durable_name=f"c{number}")
        found = await page(broker)
        assert sum(name.startswith("stream_messages{") for name in found) == 2
        assert sum(name.startswith("consumer_pending_messages{") for name in found) == 3
        assert found['left_out_series{of="streams"}'] == 1
        assert found['left_out_series{of="consumers"}'] == 3


async def test_a_broker_without_streams_or_a_disk_has_a_page_too() -> None:
    async with headrace.Broker(port=0, monitor_port=0) as broker:
        found = await page(broker)
        assert found["store_streams"] == 0
        assert not any(name.startswith("commit_seconds") for name in found)


def test_the_documentation_lists_every_metric() -> None:
    listed = guides.metrics_listed(r"headrace_(?!console_|pipeline_)")
    assert listed == [tuple(metric) for metric in METRICS]


def names_in(text: str) -> set[str]:
    found = re.findall(r"headrace_(\w+)", text)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


def test_dashboard_and_alerts_use_metrics_that_are_there() -> None:
    known = {metric.name for metric in METRICS}
    dashboard = json.loads((MONITORING / "headrace-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 8
    assert names_in(" ".join(expressions)) <= known
    rules = yaml.safe_load((MONITORING / "headrace-alerts.yml").read_text())["groups"][0]["rules"]
    assert len(rules) >= 8
    for rule in rules:
        assert names_in(rule["expr"]) <= known
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]


async def test_what_is_wrong_is_on_the_page_as_the_doctor_says_it(settings: dict[str, Any]) -> None:
    async with headrace.Broker(**settings) as broker, broker.connect() as nc:
        js = nc.jetstream()
        await js.create_stream(name="W", subjects=["w"], retention="workqueue", max_msgs=9)
        assert not any(name.startswith("finding") for name in await page(broker))
        await js.publish("w", b"x")
        found = await page(broker)
        labels = 'account="$G",finding="kept-for-nobody",severity="problem",what="stream W"'
        assert found[f"finding{{{labels}}}"] == 1
        assert found['stream_limit_messages{account="$G",stream="W"}'] == 9
        await (await js.stream("W")).create_consumer(durable_name="c")
        assert not any(name.startswith("finding") for name in await page(broker))


async def test_an_account_at_its_limit_is_on_the_page(settings: dict[str, Any]) -> None:
    async with headrace.Broker(**settings) as broker, broker.connect() as nc:
        await nc.jetstream().create_stream(name="S", subjects=["s"])
        engine = broker.hub.engine
        assert engine is not None
        engine.reconfigure(JetStreamOptions(limits=JetStreamLimits(max_streams=1)))
        labels = 'account="$G",finding="account-full",severity="problem",what="streams"'
        assert (await page(broker))[f"finding{{{labels}}}"] == 1
        engine.reconfigure(JetStreamOptions(limits=JetStreamLimits(max_streams=2)))
        assert not any(name.startswith("finding") for name in await page(broker))


def test_promtool_takes_the_alerts() -> None:
    promtool.check("rules", str(MONITORING / "headrace-alerts.yml"))


async def test_promtool_takes_the_page(settings: dict[str, Any]) -> None:
    async with headrace.Broker(**settings) as broker, broker.connect() as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"])
        await stream.create_consumer(
            durable_name="c", priority_groups=["g"], priority_policy="pinned_client"
        )
        await js.publish("s", b"x")
        async with httpx2.AsyncClient() as http:
            response = await http.get(f"{broker.monitor_url}/metrics")
    promtool.check("metrics", page=response.text)
