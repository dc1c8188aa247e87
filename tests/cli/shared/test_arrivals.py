from __future__ import annotations

from typing import cast

from headrace.cli.shared.arrivals import Arrivals
from headrace.client import Message


async def test_what_comes_beyond_the_limit_is_dropped_and_counted() -> None:
    arrivals = Arrivals(2)
    messages = [cast(Message, object()) for _ in range(5)]
    for message in messages:
        arrivals.put(message)
    assert [await anext(arrivals), await anext(arrivals)] == messages[:2]
    assert arrivals.dropped == 3
