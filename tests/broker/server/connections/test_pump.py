"""The broker on the event loops it may meet, and reading under pressure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import nats
import pytest

import peers
from headrace.broker import Broker
from headrace.broker.core.hub import Hub
from headrace.broker.server.connections.pump import Pump
from headrace.clock import SystemClock
from waiting import until

uvloop = peers.package("uvloop")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_broker_runs_on_either_loop(name: str) -> None:
    async def main() -> None:
        async with Broker(monitor_port=0, ping_interval=0.1) as broker:
            client = await nats.connect(broker.client_url, allow_reconnect=False)
            subscription = await client.subscribe("a")
            for number in range(100):
                await client.publish("a", bytes(number * 100))
            for number in range(100):
                assert len((await subscription.next_msg(timeout=5)).data) == number * 100
            (session,) = broker.hub.sessions.values()
            await until(
                lambda: session.round_trip_ns > 0, "the broker pings, which needs its timer"
            )
            await client.close()

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        runner.run(main())


async def test_reading_pauses_while_the_disk_is_behind_and_goes_on_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = True
    monkeypatch.setattr(Hub, "ingest_blocked", property(lambda hub: blocked))
    async with Broker() as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        assert (await reader.readline()).startswith(b"INFO")
        await asyncio.sleep(0)
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.readexactly(6)
        # Who comes while it is so waits, too.
        second_reader, second_writer = await asyncio.open_connection("127.0.0.1", broker.port)
        second_writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert (await second_reader.readline()).startswith(b"INFO")
        blocked = False
        assert broker._pump is not None
        broker._pump.wake()
        async with asyncio.timeout(5):
            assert await reader.readexactly(6) == b"PONG\r\n"
            assert await second_reader.readexactly(6) == b"PONG\r\n"
        for each in (writer, second_writer):
            each.close()
            await each.wait_closed()


async def test_a_fault_in_one_tick_is_not_the_end_of_the_next() -> None:
    loop = asyncio.get_running_loop()
    faults: list[object] = []
    loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
    hub = Hub(SystemClock(), random.Random(1))
    pump = Pump(hub, loop)
    ran = asyncio.Event()

    def broken() -> None:
        raise ZeroDivisionError

    hub.timers.call_at(0, broken)
    hub.timers.call_at(hub.clock.monotonic_ns() + 10_000_000, ran.set)
    pump.wake()
    async with asyncio.timeout(5):
        await ran.wait()
    pump.stop()
    assert [type(fault) for fault in faults] == [ZeroDivisionError]
    loop.set_exception_handler(None)


async def test_an_earlier_timer_replaces_the_one_that_is_armed() -> None:
    loop = asyncio.get_running_loop()
    hub = Hub(SystemClock(), random.Random(1))
    pump = Pump(hub, loop)
    now_ns = hub.clock.monotonic_ns()
    late = hub.timers.call_at(now_ns + 3600 * 10**9, lambda: None)
    pump.wake()
    await asyncio.sleep(0.001)
    ran = asyncio.Event()
    hub.timers.call_at(now_ns + 5_000_000, ran.set)
    pump.wake()
    async with asyncio.timeout(5):
        await ran.wait()
    late.cancel()
    pump.stop()


@pytest.mark.parametrize("name", LOOPS)
def test_a_timer_costs_a_turn_or_two_and_not_as_many_as_fit_into_its_last_half_millisecond(
    name: str,
) -> None:
    timers = 20

    async def main() -> int:
        hub = Hub(SystemClock(), random.Random(1))
        turns, ran = 0, asyncio.Event()
        run_timers = hub.run_timers

        def counted() -> int:
            nonlocal turns
            turns += 1
            return run_timers()

        hub.run_timers = counted  # type: ignore[method-assign]
        pump = Pump(hub, asyncio.get_running_loop())
        now_ns = hub.clock.monotonic_ns()
        for number in range(1, timers):
            hub.timers.call_at(now_ns + number * 1_450_000, lambda: None)
        hub.timers.call_at(now_ns + timers * 1_450_000, ran.set)
        pump.wake()
        async with asyncio.timeout(5):
            await ran.wait()
        pump.stop()
        return turns

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        assert runner.run(main()) <= 3 * timers
