"""The console's own page for scrapers: documented, true, and behind the password."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

import guides
import promtool
from console_world import fill
from headrace.broker.core.monitor.metrics import METRICS as BROKER_METRICS
from headrace.console import metrics
from headrace.console.guard import FAILURES_MAX
from headrace.console.look import Look
from headrace.console.metrics import METRICS, Console, prometheus

LINE = re.compile(r'^headrace_console_(\w+)(\{(?:\w+="(?:[^"\\\n]|\\.)*",?)+\})? (-?[\d.e+-]+)$')
OURS = pytest.mark.parametrize("server", ["headrace"], indirect=True)
PASSWORD = "correct horse"


def read(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            matched = LINE.match(line)
            assert matched is not None, line
            found[matched[1] + (matched[2] or "")] = float(matched[3])
    return found


async def test_the_numbers_are_those_of_the_newest_look(world: Any) -> None:
    await fill(world.js)
    stream = await world.js.stream("ORDERS")
    await stream.create_consumer(
        durable_name="query", metadata={"headrace.role": "spark-progress"}, filter_subject="in.>"
    )
    consumer = await world.js.consumer("ORDERS", "work")
    await consumer.fetch(2)
    await world.get("/overview?now=1")
    response = await world.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = read(response.text)
    assert found["healthy"] == 1
    assert found["looks_total"] >= 1
    assert 0 <= found["look_age_seconds"] < 60
    assert found['stream_messages{stream="ORDERS"}'] == 31
    assert found['stream_last_sequence{stream="ORDERS"}'] == 31
    assert found['consumer_pending_messages{stream="ORDERS",consumer="work"}'] == 29
    assert found['consumer_ack_pending_messages{stream="ORDERS",consumer="work"}'] == 2
    assert found['consumer_shows_progress{stream="ORDERS",consumer="work"}'] == 0
    assert found['consumer_shows_progress{stream="ORDERS",consumer="query"}'] == 1
    stuck = {each["name"]: each["stuck"] for each in (await world.get("/overview"))["slow"]}
    assert stuck["query"] is False  # its reader needs no pulls
    assert found['query_behind_messages{stream="ORDERS",query="query"}'] == 1
    assert found['query_behind_seconds{stream="ORDERS",query="query"}'] > 0
    assert found['left_out_series{of="streams"}'] == 0
    promtool.check("metrics", page=response.text)


@OURS
async def test_a_scraper_gives_the_password_with_each_request(
    make_world: Callable[..., Any],
) -> None:
    world = await make_world(password=PASSWORD)
    for _ in range(FAILURES_MAX + 1):  # none given is none wrong: nobody is locked out
        refused = await world.http.get("/metrics")
        assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic ")
    assert (await world.http.get("/metrics", auth=("scraper", PASSWORD))).status_code == 200
    assert (await world.http.get("/api/streams", auth=("x", PASSWORD))).status_code == 401
    for wrong in ("Basic !", "Basic " + "x" * 7, f"Bearer {PASSWORD}"):
        refused = await world.http.get("/metrics", headers={"authorization": wrong})
        assert refused.status_code == 401
    for _ in range(FAILURES_MAX):
        assert (await world.http.get("/metrics", auth=("x", "wrong horse"))).status_code == 401
    assert (await world.http.get("/metrics", auth=("x", PASSWORD))).status_code == 429
    refused = await world.send("POST", "/session", 429, password=PASSWORD)
    assert refused["code"] == "too_many_failures", "guessing is counted wherever it is done"


@OURS
async def test_a_browser_that_has_logged_in_may_see_it(make_world: Callable[..., Any]) -> None:
    world = await make_world(password=PASSWORD)
    await world.send("POST", "/session", password=PASSWORD)
    assert (await world.http.get("/metrics")).status_code == 200


def test_what_is_too_many_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.api.streams import StreamConfig, StreamInfo

    monkeypatch.setattr(metrics, "SERIES_MAX", 2)
    streams = {name: StreamInfo(config=StreamConfig(name=name)) for name in "CAB"}
    found = read(prometheus(Console(Look(1.0, streams, {}, 7), 0.0, 1, False, 0)))
    assert [name for name in found if name.startswith("stream_messages")] == [
        'stream_messages{stream="A"}',
        'stream_messages{stream="B"}',
    ]
    assert found['left_out_series{of="streams"}'] == 1
    assert found['left_out_series{of="consumers"}'] == 7
    assert found["healthy"] == 0


def test_the_documentation_lists_every_metric() -> None:
    listed = guides.metrics_listed("headrace_console_")
    shared = {tuple(metric) for metric in BROKER_METRICS}  # the page has these once
    assert listed == [tuple(metric) for metric in METRICS if tuple(metric) not in shared]


def test_the_alert_rules_for_what_pipelines_tell_use_what_is_there() -> None:
    alerts = guides.ROOT / "src/headrace/packaging/monitoring" / "headrace-pipeline-alerts.yml"
    rules = yaml.safe_load(alerts.read_text())["groups"][1]["rules"]
    used = {name for rule in rules for name in re.findall(r"headrace_console_(\w+)", rule["expr"])}
    assert used <= {metric.name for metric in METRICS}
    assert len(used) >= 5
