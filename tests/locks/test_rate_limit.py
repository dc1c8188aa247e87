"""The rate limit of ``examples``: its page, and what several processes let through together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import guides
import peers
from headrace import KeyValue, connect

EXAMPLE = guides.ROOT / "examples" / "rate_limit.py"

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def example() -> Any:
    return guides.load(EXAMPLE)


def test_the_page_shows_the_example() -> None:
    (block,) = guides.blocks_of(guides.ROOT / "docs" / "how-to" / "rate-limit.md")
    assert block.code == EXAMPLE.read_text()


async def test_the_example_lets_a_burst_of_each_customer_through(
    reference_server: peers.ServerProcess,
    example: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    standing = 1_800_000_000.0
    limit = example.RateLimit

    def at_once(bucket: KeyValue, **settings: Any) -> Any:
        return limit(bucket, clock=lambda: standing, **settings)

    monkeypatch.setattr(example, "RateLimit", at_once)
    await example.main(reference_server.url)
    said = capsys.readouterr().out.splitlines()
    assert said == ["eve: 3 of 5 let through", "joe: 3 of 5 let through"]
    async with connect(reference_server.url) as connection:
        await connection.jetstream().delete_key_value("RATES")


async def test_after_a_burst_one_is_let_through_in_each_interval(
    bucket: KeyValue, example: Any
) -> None:
    now = 1_800_000_000.0
    limit = example.RateLimit(bucket, per_second=2, burst=2, clock=lambda: now)
    assert [await limit.wait_s("a") for _ in range(2)] == [0, 0]
    assert await limit.wait_s("a") == pytest.approx(0.5, abs=1e-4)
    assert await limit.wait_s("b") == 0  # has its own
    now += 0.2
    assert await limit.wait_s("a") == pytest.approx(0.3, abs=1e-4)
    now += 0.3
    assert await limit.wait_s("a") == 0
    assert await limit.wait_s("a") > 0
    now += 3600
    assert [await limit.wait_s("a") == 0 for _ in range(3)] == [True, True, False]


async def test_of_many_at_once_no_more_than_the_burst_are_let_through(
    reference_server: peers.ServerProcess, bucket: KeyValue, example: Any
) -> None:
    async with connect(reference_server.url) as other:
        same = await other.jetstream().key_value(bucket.bucket)
        limits = [
            example.RateLimit(each, per_second=1, burst=5, clock=lambda: 1_800_000_000.0)
            for each in (bucket, same)
        ]
        waits = await asyncio.gather(*(limits[turn % 2].wait_s("a") for turn in range(20)))
    assert waits.count(0) == 5
    assert min(wait for wait in waits if wait) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (1, 0)])
async def test_a_limit_that_lets_nothing_through_is_refused(
    bucket: KeyValue, example: Any, per_second: float, burst: int
) -> None:
    with pytest.raises(ValueError, match=r"accepted are more than 0, and 1 or more"):
        example.RateLimit(bucket, per_second=per_second, burst=burst)
