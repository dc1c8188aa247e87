"""How long a member waits for a consumer that is in its way and may be in use, and that it says so."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import ConsumerConfig
from headrace.client import JetStream
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from headrace.groups.member.consumer.machine import TELL_EVERY_S, WaitForPinned
from waiting import until

ACK_WAIT_S = 3.0
MEMBER = "a"


async def test_a_consumer_of_a_former_owner_that_nobody_is_pinned_to_is_waited_for_with_a_word(
    js: JetStream,
) -> None:
    """As a change of the group leaves it, when its server is restarted under it."""
    await js.create_stream(name="S", subjects=["s.*"])
    filters = [PartitioningFilter("s.*", (1,))]
    await elastic.create(js, "S", "g", 2, partitioning_filters=filters, members=[MEMBER])
    for number in range(4):
        await js.publish(f"s.{number}", b"%d" % number)

    async def is_copied() -> bool:
        return (await (await js.stream("S-g")).info()).state.messages == 4

    async with asyncio.timeout(30):
        while not await is_copied():
            await asyncio.sleep(0)
    queue = await js.stream("S-g")
    # Other filters than the member wants; its messages were delivered to somebody who is gone.
    former = await queue.create_consumer(name=MEMBER, ack_wait=60.0, inactive_threshold=60.0)
    await former.fetch(4, max_wait=5.0)
    said: list[str] = []
    handled: list[bytes] = []

    async def handle(message: GroupMessage) -> None:
        await message.ack_sync()
        handled.append(message.payload)

    settings = ConsumerConfig(ack_wait=ACK_WAIT_S, max_ack_pending=50)
    begun = asyncio.get_running_loop().time()
    async with elastic.join(
        js, "S", "g", MEMBER, handle, settings, on_error=lambda error: said.append(str(error))
    ):
        await until(lambda: len(handled) == 4, within=60)
        took = asyncio.get_running_loop().time() - begun
    assert any(MEMBER in each and "4 messages" in each and "waits" in each for each in said), said
    assert took >= ACK_WAIT_S - 0.5, "the former owner had no time"


# The decision, without a server


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("pinned", "seconds"), [(False, 5.0), (True, 10.0)])
def test_it_waits_for_a_lease_where_nobody_is_pinned_and_else_for_two_pins(
    pinned: bool, seconds: float
) -> None:
    clock = Clock()
    patience = WaitForPinned(clock, lease_s=5.0, pin_s=5.0)
    while not patience.is_over(is_pinned=pinned):
        clock.now += 0.25
    assert clock.now == seconds


def test_who_is_pinned_in_between_has_the_time_anew() -> None:
    clock = Clock()
    patience = WaitForPinned(clock, lease_s=5.0, pin_s=5.0)
    assert not patience.is_over(is_pinned=False)
    clock.now = 4.0
    assert not patience.is_over(is_pinned=True)
    clock.now = 6.0
    assert not patience.is_over(is_pinned=False)
    clock.now = 9.5
    assert not patience.is_over(is_pinned=False)
    clock.now = 10.0  # two pins: whoever it is should have gone
    assert patience.is_over(is_pinned=False)


@given(st.lists(st.floats(0.01, 0.5), min_size=1, max_size=200))
def test_a_wait_is_never_silent_for_longer_than_it_says(pauses: list[float]) -> None:
    clock = Clock()
    patience = WaitForPinned(clock, lease_s=5.0, pin_s=5.0)
    told = 0.0
    for pause in pauses:
        if patience.is_to_be_told():
            told = clock.now
        assert clock.now - told <= TELL_EVERY_S + 0.5
        clock.now += pause


def test_what_is_over_at_once_needs_no_word() -> None:
    clock = Clock()
    patience = WaitForPinned(clock, lease_s=5.0, pin_s=5.0)
    assert not patience.is_to_be_told()
    clock.now = 0.5
    assert not patience.is_to_be_told()
    patience.end()
    clock.now = 60.0
    assert not patience.is_to_be_told()
