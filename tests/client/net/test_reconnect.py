"""When a lost server is tried again, in virtual time."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.net.handshake import ServerAddress
from headrace.client.net.options import Options
from headrace.client.net.reconnect import EAGER_PAUSE_S, EAGER_S, restore
from headrace.client.net.servers import ServerPool
from headrace.errors import ConnectionClosedError
from virtual_time import run


def tries_of(seed: int, until_s: float, **given: float) -> list[float]:
    """When the server is tried, in seconds after the loss, until it answers."""
    options = Options(**given)  # type: ignore[arg-type]
    address = ServerAddress("127.0.0.1", 4222)
    source = random.Random(seed)
    pool = ServerPool([address], randomize=False, max_attempts=-1, random=source)
    tried: list[float] = []

    async def dial(address: ServerAddress, options: Options) -> Any:
        del address, options
        now = asyncio.get_running_loop().time()
        tried.append(now)
        if now < until_s:
            raise ConnectionClosedError("refused")
        return object()

    async def main() -> None:
        await restore(pool, options, source, dial)

    run(main())
    return tried


@given(st.integers(0, 2**32), st.floats(0.0, EAGER_S - 0.3))
def test_a_server_that_is_restarted_is_found_within_a_quarter_of_a_second(
    seed: int, away_s: float
) -> None:
    assert tries_of(seed, away_s)[-1] - away_s <= EAGER_PAUSE_S


@given(st.integers(0, 2**32))
def test_one_that_stays_away_is_tried_less_and_less(seed: int) -> None:
    tried = tries_of(seed, 60.0)
    pauses = [after - before for before, after in pairwise(tried)]
    assert len(tried) < 60
    assert max(pauses) <= 5.0
    assert all(pause >= 2.5 for pause in pauses[-5:])
    grown = [pause for before, pause in zip(tried, pauses, strict=False) if before > EAGER_S]
    assert all(after <= 4 * before for before, after in pairwise(grown)), "no leap after the start"


@pytest.mark.parametrize("wait", [0.5, 3.0])
def test_a_longer_first_pause_is_kept(wait: float) -> None:
    tried = tries_of(1, 20.0, reconnect_wait=wait, reconnect_wait_max=10.0)
    assert all(after - before >= wait / 2 for before, after in pairwise(tried))
