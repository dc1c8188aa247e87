from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace as Namespace

import pytest
import yaml

from headrace import Broker
from headrace.cli.group.metrics import Exporter, measured, metrics_command, text_of
from headrace.client import JetStream
from headrace.errors import ConfigurationError
from headrace.groups import GroupError, GroupNotFoundError, elastic, static


@pytest.fixture
async def js(tmp_path: Path) -> AsyncIterator[JetStream]:
    async with Broker(store_dir=tmp_path) as broker, broker.connect() as connection:
        js = connection.jetstream()
        await js.create_stream(
            name="ORDERS", subjects=["orders.*", "0.orders"], storage="memory", allow_direct=True
        )
        await elastic.create(js, "ORDERS", "e", 2, members=["a"])
        await static.create(js, "ORDERS", "s", 2, members=["b"])
        yield js


async def collect(js: JetStream, stream: str, groups: Sequence[str] = ()) -> str:
    return text_of(*await measured(js, stream, groups))


async def get(url: str) -> tuple[int, str, str]:
    def ask() -> tuple[int, str, str]:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    return await asyncio.to_thread(ask)


async def test_all_groups_of_a_stream_or_those_named(js: JetStream) -> None:
    both = await collect(js, "ORDERS")
    assert 'headrace_group_lag_messages{stream="ORDERS",group="e"} 0' in both
    assert 'headrace_group_members{stream="ORDERS",group="s"} 1' in both
    assert 'group="e"' not in await collect(js, "ORDERS", ["s"])
    with pytest.raises(GroupNotFoundError, match="no group 'x', static or elastic"):
        await collect(js, "ORDERS", ["x"])


async def test_a_group_that_cannot_be_read_does_not_hide_the_others(js: JetStream) -> None:
    bucket = await js.key_value("static-consumer-groups")
    await bucket.put("ORDERS.bad", b"no JSON")
    await js.delete_stream("ORDERS-e")
    text = await collect(js, "ORDERS")
    assert 'headrace_group_members{stream="ORDERS",group="s"} 1' in text
    assert "\n# group bad: the record of static group 'bad'" in text
    assert "\n# group e: stream 'ORDERS-e'" in text


async def test_they_are_served_over_http(js: JetStream) -> None:
    async with Exporter(js, "ORDERS", listen="127.0.0.1:0") as exporter:
        status, kind, text = await get(exporter.url)
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'headrace_group_lag_messages{stream="ORDERS",group="e"} 0' in text
        asked = js.connection.stats().requests
        assert (await get(exporter.url))[2] == text
        assert js.connection.stats().requests == asked  # shared within a second
        assert (await get(exporter.url.replace("/metrics", "/")))[0] == 404


async def test_a_stream_that_is_gone_is_said(js: JetStream) -> None:
    async with Exporter(js, "ORDERS", ["x"], listen="127.0.0.1:0") as exporter:
        status, _, text = await get(exporter.url)
        assert (status, text) == (503, "stream 'ORDERS' has no group 'x', static or elastic\n")


async def test_an_address_in_use_is_said(js: JetStream) -> None:
    async with Exporter(js, "ORDERS", listen="127.0.0.1:0") as exporter:
        port = exporter.url.split(":")[2].partition("/")[0]
        with pytest.raises(ConfigurationError, match=f"--listen 127.0.0.1:{port}: .*in use"):
            async with Exporter(js, "ORDERS", listen=f"127.0.0.1:{port}"):
                pass


async def test_once_prints_them(js: JetStream, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"stream": "ORDERS", "groups": ["e"], "once": True, "listen": ""}
    assert await metrics_command(js, Namespace(**asked, form="text")) == 0
    text = capsys.readouterr().out
    assert text.count("\nheadrace_group_lag_messages{") == 1
    await metrics_command(js, Namespace(**asked, form="json"))
    found = json.loads(capsys.readouterr().out)
    assert [each["group"] for each in found["groups"]] == ["e"]
    await metrics_command(js, Namespace(**asked, form="yaml"))
    again = yaml.safe_load(capsys.readouterr().out)["groups"]
    assert again == [{**each, "at": again[0]["at"]} for each in found["groups"]]  # of another look
    with pytest.raises(ConfigurationError, match="--json goes with --once"):
        await metrics_command(js, Namespace(**{**asked, "once": False}, form="json"))
    with pytest.raises(GroupError, match="no group 'x', static or elastic"):
        await metrics_command(js, Namespace(**{**asked, "groups": ["x"]}, form="text"))


@pytest.mark.parametrize("listen", ["9464", "host:", "host:x", "host:70000"])
def test_a_wrong_address_is_refused(listen: str) -> None:
    with pytest.raises(ConfigurationError, match="accepted is HOST:PORT"):
        Exporter(None, "S", listen=listen)  # type: ignore[arg-type]
