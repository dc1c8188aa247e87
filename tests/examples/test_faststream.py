"""FastStream unmodified, on both servers: the program of its page, and what the page says beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import guides
import peers
from example_programs import WITHIN_S, started
from headrace.client import JetStream
from waiting import until

PROGRAM = guides.ROOT / "examples" / "faststream_shop.py"
PAGE = guides.ROOT / "docs" / "how-to" / "faststream.md"


def test_the_page_shows_the_program() -> None:
    program, _ = guides.blocks_of(PAGE)
    assert program.code == PROGRAM.read_text()


@pytest.mark.peer
async def test_orders_are_billed_by_faststream_and_mailed_by_a_group(
    reference_server: peers.ServerProcess, js: JetStream, tmp_path: Path
) -> None:
    async with started(
        PROGRAM.name, url=reference_server.url, log=tmp_path / "log", folder=PROGRAM.parent
    ) as shop:

        async def is_ready() -> bool:
            names = [name async for name in js.stream_names()]
            if "FASTSHOP" not in names:
                return False
            consumers = [name async for name in (await js.stream("FASTSHOP")).consumer_names()]
            return "billing" in consumers

        await until(is_ready, "FastStream makes no consumer", within=WITHIN_S)
        for number, item in enumerate(("plums", "pears", "plums"), 1):
            await js.publish(
                f"fast.orders.{number}", f'{{"customer":"eve","item":"{item}"}}'.encode()
            )
        await until(lambda: shop.said.count("owes") == 3, "no invoice is mailed", within=WITHIN_S)
        billing = await js.consumer("FASTSHOP", "billing")

        async def is_confirmed() -> bool:
            info = await billing.info()
            return not info.num_pending and not info.num_ack_pending

        await until(is_confirmed, "FastStream acknowledges nothing", within=WITHIN_S)
        said = await shop.ended(told=True)
    assert "Traceback" not in said, said
    mailed = sorted(line for line in said.splitlines() if "owes" in line)
    assert mailed == ["eve owes 250 cents", "eve owes 300 cents", "eve owes 300 cents"]


def test_the_test_of_the_page_passes_without_a_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, block = guides.blocks_of(PAGE)
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    test = tmp_path / "page.py"  # FastStream reads the source of who calls it
    test.write_text(block.code)
    asyncio.run(guides.load(test).test_an_order_is_billed())
