"""What the log says of the time of day: that it jumped, and that streams are ahead of it."""

from __future__ import annotations

import pytest

from headrace.broker.server.moved_clock import tell_of_jump, tell_of_streams_ahead
from headrace.clock import Jump
from headrace.embedded import Broker
from jetstream_world import World

DAY_NS = 86_400 * 10**9


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_a_broker_tells_of_jumps(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker() as broker:
        assert broker._hub is not None
        for jump in (Jump(DAY_NS, "seen"), Jump(DAY_NS, "followed"), Jump(-DAY_NS // 2, "over")):
            broker._hub.clock.on_jump(jump)
        assert broker._hub.clock.on_jump is tell_of_jump
    assert [line for line in lines(caplog) if line.startswith("Clock: ")] == [
        "Clock: it jumped 86400.0 s ahead; followed when that has lasted 60 s",
        "Clock: the jump 86400.0 s ahead has lasted and is followed; ages, schedules and pauses go by it",
        "Clock: the jump 43200.0 s back is over, and had no effect",
    ]


def test_streams_that_are_ahead_are_named_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    client = world.client()
    for number in range(7):
        client.stream(f"S{number}", subjects=[f"s.{number}"])
        client.put(b"s.%d" % number)
    tell_of_streams_ahead(world.hub)
    assert lines(caplog) == []
    world.clock.jump(-86_400)
    world.restart()
    tell_of_streams_ahead(world.hub)
    (line,) = lines(caplog)
    assert line.startswith(
        "Clock: 7 streams have messages from up to 86400.0 s later than it is now ("
    )
    assert line.count(", ") == 5
