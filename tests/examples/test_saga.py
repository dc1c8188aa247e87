"""The saga of ``examples``: its page, and that who leads it may die at each step."""

from __future__ import annotations

from typing import Any

import pytest

import guides
import peers
from headrace.client import Connection, JetStream, connect

EXAMPLE = guides.ROOT / "examples" / "saga.py"
JOE = ["stock.reserve joe-1", "payment.charge joe-1", "parcel.send joe-1"]
EVE = ["stock.reserve eve-2", "stock.release eve-2"]


@pytest.fixture(scope="module")
def example() -> Any:
    return guides.load(EXAMPLE)


def test_the_page_shows_the_example() -> None:
    (block,) = guides.blocks_of(guides.ROOT / "docs" / "how-to" / "saga.md")
    assert block.code == EXAMPLE.read_text()


@pytest.mark.peer
async def test_an_order_is_done_or_undone(
    reference_server: peers.ServerProcess,
    js: JetStream,
    example: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await example.main(reference_server.url)
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "joe-1: done",
        "eve-2: eve has no money (code 402)",
        *(f"  {effect}" for effect in (*JOE, *EVE)),
    ]


class Dead(Exception):
    """Who leads the saga has died."""


class Mortal:
    """A connection, or a bucket, whose user dies at one of its calls, before or after it is done."""

    def __init__(self, inner: Any, dies_at: int, after: bool) -> None:
        self._inner, self._dies_at, self._after = inner, dies_at, after
        self.calls = 0

    async def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        dies = self.calls == self._dies_at
        self.calls += 1
        if dies and not self._after:
            raise Dead
        try:
            return await getattr(self._inner, name)(*arguments, **named)
        finally:
            if dies:
                raise Dead

    async def request(self, *arguments: Any, **named: Any) -> Any:
        return await self._call("request", *arguments, **named)

    async def update(self, *arguments: Any) -> Any:
        return await self._call("update", *arguments)

    async def get(self, key: str) -> Any:
        return await self._inner.get(key)


@pytest.mark.peer
@pytest.mark.parametrize("what", ["request", "update"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("order", "effects"), [("joe-1", JOE), ("eve-2", EVE)])
async def test_a_saga_goes_on_where_its_leader_died(
    what: str,
    after: bool,
    order: str,
    effects: list[str],
    reference_server: peers.ServerProcess,
    js: JetStream,
    example: Any,
) -> None:
    async with connect(reference_server.url) as connection:
        for dies_at in range(3):
            bucket = await js.create_key_value(f"SAGA{dies_at}", storage="memory")
            services = example.Services()
            service = await services.start(connection)
            dying: Connection | Mortal = connection
            dying_bucket: Any = bucket
            if what == "request":
                dying = Mortal(connection, dies_at, after)
            else:
                dying_bucket = Mortal(bucket, dies_at, after)
            with pytest.raises(Dead):
                await example.Saga(dying, dying_bucket).carry_on(order)
            progress = await example.Saga(connection, bucket).carry_on(order)
            assert progress.is_over
            assert services.effects == effects
            assert await example.Saga(None, bucket).carry_on(order) == progress  # it is over
            await service.stop()
