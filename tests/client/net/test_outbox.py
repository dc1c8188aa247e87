"""Output: one write per turn, bounded, and what survives a lost connection."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.net.outbox import WRITE_AT_BYTES, Outbox, Slip
from headrace.errors import BufferFullError, ConnectionClosedError


class Transport(asyncio.WriteTransport):
    """Collects writes; pauses when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0


def outbox(limit: int = 100, disconnected: int = 50) -> Outbox:
    return Outbox(asyncio.get_running_loop(), limit=limit, disconnected_limit=disconnected)


async def test_a_turn_of_the_loop_is_one_write() -> None:
    out, transport = outbox(), Transport()
    out.attach(transport, b"")
    for number in range(5):
        out.put(b"%d" % number)
    assert transport.writes == []
    await asyncio.sleep(0)
    assert transport.writes == [b"01234"]


async def test_a_long_turn_is_written_in_pieces() -> None:
    out, transport = outbox(), Transport()
    out.attach(transport, b"")
    out.put(b"x" * WRITE_AT_BYTES)
    assert len(transport.writes) == 1


async def test_what_waits_goes_out_after_the_first_words_of_a_connection() -> None:
    out, transport = outbox(), Transport()
    out.put(b"PUB")
    out.attach(transport, b"SUB ")
    assert transport.writes == [b"SUB PUB"]


async def test_while_disconnected_the_buffer_is_bounded_and_nothing_half_queued() -> None:
    out, transport = outbox(), Transport()
    out.put(b"x" * 50)
    with pytest.raises(BufferFullError, match="reconnect_buffer_bytes allows 50"):
        out.put(b"y")
    assert out.unsent_bytes == 50
    out.attach(transport, b"")
    assert transport.writes == [b"x" * 50]


async def test_a_paused_transport_makes_publishers_wait_and_then_refuse() -> None:
    out, transport = outbox(), Transport()
    out.attach(transport, b"")
    out.pause()
    out.put(b"x" * 101)
    assert out.over_limit
    waiting = asyncio.create_task(out.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    out.put(b"x" * 299)
    with pytest.raises(BufferFullError, match="outbound_bytes"):
        out.put(b"x")
    out.resume()
    await waiting
    assert sum(map(len, transport.writes)) == 400


async def test_a_lost_connection_keeps_publishes_and_drops_what_was_its_own() -> None:
    out = outbox()
    out.attach(Transport(), b"")
    out.put_once(b"PING ")
    out.put(b"PUB1 ")
    out.put_once(b"SUB ")
    out.put(b"PUB2 ")
    out.detach()
    again = Transport()
    out.attach(again, b"")
    assert again.writes == [b"PUB1 PUB2 "]


async def test_losing_or_closing_the_connection_frees_who_waits() -> None:
    out = outbox()
    out.attach(Transport(), b"")
    out.pause()
    out.put(b"x" * 101)
    waiting = asyncio.create_task(out.wait_for_room())
    await asyncio.sleep(0)
    out.detach()
    await waiting
    out.close(ConnectionClosedError("over"))
    with pytest.raises(ConnectionClosedError, match="over"):
        out.put(b"x")


async def test_what_is_urgent_takes_along_what_waits_and_leaves_no_turn_behind() -> None:
    out, transport = outbox(), Transport()
    out.attach(transport, b"")
    out.put_now(b"1")
    assert transport.writes == [b"1"]
    out.put(b"2")
    out.put_now(b"3")
    assert transport.writes == [b"1", b"23"]
    out.pause()
    out.put_now(b"4")
    assert len(transport.writes) == 2
    out.resume()
    assert transport.writes[-1] == b"4"
    out.put_now(b"5")
    out.detach()
    again = Transport()
    out.attach(again, b"")
    assert again.writes == []


async def test_what_waits_can_be_withdrawn_until_it_is_written() -> None:
    out, transport = outbox(), Transport()
    first, second = out.put_slip(b"one ", keep=True), out.put_slip(b"two ", keep=True)
    assert out.withdraw(first)
    assert out.withdraw(first)  # once more changes nothing
    assert out.unsent_bytes == 4
    out.attach(transport, b"")
    assert transport.writes == [b"two "]
    assert not out.withdraw(second)
    assert out.put_slip(b"three ", keep=False) is None
    assert not out.withdraw(None)
    assert out.written_publishes == 1
    out.pause()
    lost, kept = out.put_slip(b"four ", keep=False), out.put_slip(b"five ", keep=True)
    assert (lost is not None, kept is not None) == (True, True)
    out.detach()
    assert out.unsent_bytes == 5
    assert out.withdraw(lost)
    assert out.unsent_bytes == 5
    again = Transport()
    out.attach(again, b"")
    assert again.writes == [b"five "]
    out.detach()
    last = out.put_slip(b"six ", keep=True)
    out.close(ConnectionClosedError("over"))
    assert out.withdraw(last)
    assert out.unsent_bytes == 0


@given(
    st.lists(st.tuples(st.sampled_from(["put", "slip", "once", "withdraw"]), st.integers(0, 99)))
)
def test_what_was_not_withdrawn_is_written_in_its_order_and_nothing_else(
    steps: list[tuple[str, int]],
) -> None:
    async def play() -> None:
        out, transport = outbox(10_000, 10_000), Transport()
        expected: list[bytes] = []
        slips: list[tuple[bytes, Slip | None]] = []
        for number, (step, which) in enumerate(steps):
            data = b"%d " % number
            if step == "put":
                out.put(data)
                expected.append(data)
            elif step in ("slip", "once"):
                slips.append((data, out.put_slip(data, keep=step == "slip")))
                expected.append(data)
            elif slips:
                gone, slip = slips.pop(which % len(slips))
                assert out.withdraw(slip)
                expected.remove(gone)
            assert out.unsent_bytes == sum(map(len, expected))
        out.attach(transport, b"")
        assert b"".join(transport.writes) == b"".join(expected)
        assert out.unsent_bytes == 0

    asyncio.run(play())


async def test_what_is_withdrawn_over_and_over_takes_no_room() -> None:
    out = outbox(10_000, 10_000)
    out.put(b"stays ")
    held = [out.put_slip(b"stays, too ", keep=True) for _ in range(10)]
    for _ in range(10_000):
        assert out.withdraw(out.put_slip(b"x" * 99, keep=True))
    assert len(out._items) < 200
    assert len(out._keep) < 200
    transport = Transport()
    out.attach(transport, b"")
    assert b"".join(transport.writes) == b"stays " + b"stays, too " * len(held)
