"""The page of workers shows the example as it is, and both do what they say."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from typing import Any

import pytest

import guides
import peers
from headrace.client import connect
from headrace.worker import Worker, run
from headrace.worker.metrics import METRICS, PREFIX, SECONDS
from waiting import until

PAGE = guides.ROOT / "docs" / "worker.md"
EXAMPLE = guides.ROOT / "examples" / "shop_worker.py"
CELERY = guides.ROOT / "docs" / "how-to" / "from-celery.md"


def worker_of(path: str) -> Worker:
    spec = importlib.util.spec_from_file_location("the_worker", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Worker = module.worker
    return found


def test_the_page_shows_the_example_and_all_its_blocks_run() -> None:
    (shown,) = re.findall(r"(?m)^```\{literalinclude\} (\S+)$", PAGE.read_text())
    assert (PAGE.parent / shown).resolve() == EXAMPLE
    blocks = guides.blocks_of(PAGE)
    assert blocks
    for block in blocks:
        compile(block.code, str(PAGE), "exec")


def test_the_page_names_each_metric_with_its_meaning() -> None:
    rows = dict(re.findall(r"(?m)^\| `(headrace_worker_\w+)` \| (.+) \|$", PAGE.read_text()))
    assert rows == {PREFIX + each.name: each.meaning for each in (*METRICS, SECONDS)}


@pytest.mark.peer
async def test_the_example_bills_mails_and_puts_away_what_does_not_fit(
    reference_server: peers.ServerProcess,
) -> None:
    worker, over = worker_of(str(EXAMPLE)), asyncio.Event()
    running = asyncio.create_task(run(worker, over, servers=reference_server.url))
    async with connect(reference_server.url) as connection:
        js = connection.jetstream()

        async def has_subject() -> bool:
            return "SHOP" in [name async for name in js.stream_names()]

        await until(has_subject)
        await js.publish("shop.orders.eve", b'{"customer":"eve","item":"plums"}')
        await js.publish("shop.orders.joe", b'{"customer":5}')
        mailed = worker.sources[1].tally
        await until(lambda: mailed.handled == 1)
        stream = await js.stream("SHOP")

        async def is_put_away() -> bool:
            return (await stream.info()).state.messages == 4

        await until(is_put_away)
        letter = await stream.get_last_message("shop.dead.billing")
        invoice = await stream.get_last_message("shop.invoices.new")
        over.set()
        await running
        await stream.delete()
    assert invoice.payload == b'{"customer":"eve","amount":5}'
    assert "no Order" in (letter.headers["Headrace-Failure"] or "")


def test_the_worker_for_those_who_come_from_celery_is_one(tmp_path: Any) -> None:
    (block,) = guides.blocks_of(CELERY)
    (tmp_path / "app.py").write_text(block.code)
    worker = worker_of(str(tmp_path / "app.py"))
    assert [each.label for each in worker.sources] == ["TASKS/resize"]
