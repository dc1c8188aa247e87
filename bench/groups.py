"""Partitioned consumer groups: ours against natsio-pcgroups, and what they do on either server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import contenders
import report
from contenders import Contender, running
from group_members import (
    FUNCTION,
    OURS,
    PLAIN,
    QUEUE,
    STREAM,
    THEIRS,
    World,
    client_us,
    interpreter,
    peer_is_there,
    rate,
    world_on,
)
from headrace.groups import Layout

NAMES = {
    OURS: "ours",
    FUNCTION: "ours, plain function",
    THEIRS: "natsio-pcgroups",
    PLAIN: "plain consumer",
}
OUR_PARTITIONS = "ours, per_partition"
ONE, MANY = 1, 500
MESSAGES = {ONE: 4_000, MANY: 40_000}
READ = 100_000
PARTITIONS = 8
CHANGES = 5
CHANGE_WORK_S = 0.001
PACE_S = 0.0025
LATENCIES = 2_000
WORK_S = 0.005
WORKED = 1_500
CATCH_UP = 200_000
CATCH_UP_PARTITIONS, CATCH_UP_KEYS = 16, 1_000
CATCH_UP_S = 15.0

Measure = Callable[[World], Awaitable[Any]]


def on(url: str, measure: Measure, partitions: int = PARTITIONS) -> Any:
    async def work() -> Any:
        async with world_on(url, partitions) as world:
            return await measure(world)

    return asyncio.run(work())


# Handled messages per second


def handling(who: str, pending: int, layout: Layout = "interoperable") -> Measure:
    """One member with all partitions, which finds all messages there: how many per second, and the
    microseconds of its processor time for each."""

    async def measure(world: World) -> tuple[float, float]:
        count = MESSAGES[pending]
        await world.elastic(layout)
        await world.fill(count)
        if who == PLAIN:
            await world.plain_consumer(QUEUE, pending)
            member = await world.member(PLAIN, ["a"], stream=QUEUE, group=PLAIN, count=count)
        else:
            member = await world.member(who, ["a"], max_ack_pending=pending, count=count)
            await world.change(["a"])
        result = await member.result()
        return rate([result]), client_us(result)

    return measure


def reading(who: str, layout: Layout = "interoperable") -> Measure:
    """The same with a static group on a stream in memory, where the server has the least to do."""

    async def measure(world: World) -> tuple[float, float]:
        await world.numbered(READ, 100, "memory")
        if who == PLAIN:
            await world.plain_consumer(STREAM, MANY)
            member = await world.member(PLAIN, ["a"], stream=STREAM, group=PLAIN, count=READ)
        else:
            await world.static(layout, ["a"])
            member = await world.member(who, ["a"], max_ack_pending=MANY, count=READ)
        result = await member.result()
        return rate([result]), client_us(result)

    return measure


def planned_change(who: str) -> Measure:
    """Milliseconds from the call that adds a member to its first message, several times over."""

    async def measure(world: World) -> list[float]:
        await world.elastic()
        await world.fill(20_000)  # more than they handle meanwhile
        staying = await world.member(who, ["a"], work=CHANGE_WORK_S)
        coming = await world.member(who, ["b"], work=CHANGE_WORK_S)
        await world.change(["a"])
        await staying.until("begun")
        found = []
        for _ in range(CHANGES):
            asked = await world.change(["a", "b"])
            began = await coming.until("begun")
            found.append((began - asked) / 1e6)
            await world.change(["a"])
            await world.until_alone()
        await staying.end()
        await coming.end()
        return found

    return measure


# Members and servers


def crowd(
    layout: Layout, processes: Sequence[Sequence[str]], messages: int, work: float = 0.0
) -> Measure:
    """Several members in several processes, one message at a time."""

    async def measure(world: World) -> float:
        await world.elastic(layout)
        await world.fill(messages, keys=400)
        started = [await world.member(OURS, members, work=work) for members in processes]
        await world.change([name for members in processes for name in members])
        await world.until_empty()
        return rate([await member.end() for member in started])

    return measure


def latencies(layout: Layout, processes: Sequence[Sequence[str]]) -> Measure:
    """Milliseconds from publishing to the handler, at a pace that leaves everybody time."""

    async def measure(world: World) -> list[float]:
        await world.elastic(layout, [name for members in processes for name in members])
        started = [await world.member(OURS, members, timed=True) for members in processes]
        await world.pace(LATENCIES, PACE_S)
        await world.until_empty()
        results = [await member.end() for member in started]
        return sorted(each / 1e6 for result in results for each in result["latencies"])

    return measure


def catching_up(layout: Layout) -> Measure:
    """One member with all partitions of a long stream; per second, of what it got within some seconds."""

    async def measure(world: World) -> float:
        await world.numbered(CATCH_UP, CATCH_UP_PARTITIONS * CATCH_UP_KEYS)
        await world.static(layout, ["a"])
        member = await world.member(OURS, ["a"], max_ack_pending=MANY, count=CATCH_UP)
        ends = time.monotonic() + CATCH_UP_S
        waiting = asyncio.ensure_future(member.result())
        await asyncio.wait([waiting], timeout=ends - time.monotonic())
        if not waiting.done():
            member.process.terminate()
        return rate([await waiting])

    return measure


# Tables


def handled(rounds: int, servers: Sequence[Contender]) -> None:
    """Both implementations, and a plain consumer with the same filters, in turn."""
    rows = []
    for contender in servers:
        for kind, pending in (("elastic", ONE), ("elastic", MANY), ("static", MANY)):
            measures = _measures(kind, pending)
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in measures}
            with running(contender) as server:
                for _ in range(rounds):
                    for name, measure in measures.items():
                        found[name].append(on(server.url, measure))
            rates = {
                name: report.median([rate for rate, _ in each]) for name, each in found.items()
            }
            costs = {
                name: report.median([cost for _, cost in each]) for name, each in found.items()
            }
            base = rates.get(NAMES[THEIRS], rates[NAMES[OURS]])
            rows += [
                [
                    contender.name,
                    kind,
                    str(pending),
                    name,
                    f"{rates[name]:,.0f}",
                    report.spread([rate for rate, _ in each]),
                    f"{rates[name] / base:.2f}",
                    f"{costs[name]:.1f}",
                ]
                for name, each in found.items()
            ]
            _claim_handled(f"{kind}, max_ack_pending={pending}, {contender.name}", pending, rates)
    head = ["server", "group", "pending", "member", "handled/s", "range", "×", "client µs/message"]
    report.table(f"One member, {PARTITIONS} partitions, no-op handler", head, rows)


def _measures(kind: str, pending: int) -> dict[str, Measure]:
    make = partial(handling, pending=pending) if kind == "elastic" else reading
    measures: dict[str, Measure] = {NAMES[who]: make(who) for who in _both()}
    measures[NAMES[FUNCTION]] = make(FUNCTION)
    measures[OUR_PARTITIONS] = make(OURS, layout="per_partition")
    if pending == MANY:
        measures[NAMES[PLAIN]] = make(PLAIN)
    return measures


def _claim_handled(what: str, pending: int, rates: dict[str, float]) -> None:
    ours = rates[NAMES[OURS]]
    measured = f"{ours:,.0f}/s"
    if theirs := rates.get(NAMES[THEIRS]):
        report.claim(what, measured, ours / theirs, at_least={ONE: 1.3, MANY: 3.0}[pending])
    if plain := rates.get(NAMES[PLAIN]):
        report.claim(f"{what}, of a plain consumer", measured, ours / plain, at_least=0.7)


def changes(servers: Sequence[Contender]) -> None:
    rows = []
    for contender in servers:
        medians = {}
        for who in _both():
            with running(contender) as server:
                found = on(server.url, planned_change(who))
            medians[who] = report.median(found)
            rows.append([contender.name, NAMES[who], f"{medians[who]:,.0f}", report.spread(found)])
        if THEIRS in medians:
            ratio = medians[THEIRS] / medians[OURS]
            report.claim(
                f"planned change, {contender.name}", f"{medians[OURS]:,.0f} ms", ratio, at_least=2.0
            )
    report.table(
        "A member is added: until its first message (ms)", ["server", "member", "ms", "range"], rows
    )


FOUR_IN_TWO = (["a", "b"], ["c", "d"])


def together(rounds: int, servers: Sequence[Contender]) -> None:
    rows = []
    for contender in servers:
        for layout in LAYOUTS:
            with running(contender) as server:
                rates = [on(server.url, crowd(layout, FOUR_IN_TWO, 8_000)) for _ in range(rounds)]
                times = on(server.url, latencies(layout, FOUR_IN_TWO))
            p50, p99 = (times[int(len(times) * share)] for share in (0.5, 0.99))
            rows.append(
                [
                    contender.name,
                    layout,
                    f"{report.median(rates):,.0f}",
                    report.spread(rates),
                    f"{p50:.2f}",
                    f"{p99:.2f}",
                ]
            )
    head = ["server", "layout", "handled/s", "range", "p50 (ms)", "p99 (ms)"]
    report.table(
        f"{PARTITIONS} partitions, 4 members in 2 processes, max_ack_pending=1", head, rows
    )


def scaling(rounds: int, servers: Sequence[Contender]) -> None:
    rows = []
    names = ["a", "b", "c", "d"]
    for contender in servers:
        medians = {}
        with running(contender) as server:
            for count in (1, 2, 4):
                each = [[name] for name in names[:count]]
                measure = crowd("interoperable", each, count * WORKED, work=WORK_S)
                medians[count] = report.median([on(server.url, measure) for _ in range(rounds)])
        for count, least in ((2, 1.8), (4, 3.4)):
            report.claim(
                f"{count} members for 1, 5 ms of work, {contender.name}",
                f"{medians[count]:,.0f}/s",
                medians[count] / medians[1],
                at_least=least,
            )
        rows.append([contender.name, *(f"{medians[count]:,.0f}" for count in (1, 2, 4))])
    report.table("A handler that takes 5 ms: handled/s", ["server", "1 member", "2", "4"], rows)


def catch_up(servers: Sequence[Contender]) -> None:
    rows = []
    for contender in servers:
        rates = {}
        for layout in LAYOUTS:
            with running(contender) as server:
                rates[layout] = on(server.url, catching_up(layout), CATCH_UP_PARTITIONS)
        ratio = rates["per_partition"] / rates["interoperable"]
        rows.append(
            [contender.name, *(f"{rates[layout]:,.0f}" for layout in LAYOUTS), f"{ratio:.1f}"]
        )
        what = f"catching up, per_partition for interoperable, {contender.name}"
        measured = f"{rates['per_partition']:,.0f}/s"
        if contender is contenders.HEADRACE:
            report.claim(what, measured, ratio, at_most=2.0)
        else:
            report.claim(what, measured, ratio, at_least=50.0)
    report.table(
        f"Catching up with {CATCH_UP:,} messages, {CATCH_UP_PARTITIONS} partitions × {CATCH_UP_KEYS:,} keys",
        ["server", *LAYOUTS, "×"],
        rows,
    )


LAYOUTS: Sequence[Layout] = ("interoperable", "per_partition")


def _both() -> list[str]:
    return [OURS, THEIRS] if peer_is_there() else [OURS]


def run(rounds: int, servers: Sequence[Contender], only: Sequence[str]) -> None:
    """All tables, or those named."""
    print(f"members run on {interpreter()}")
    tables: dict[str, Callable[[], None]] = {
        "handled": lambda: handled(rounds, servers),
        "changes": lambda: changes(servers),
        "together": lambda: together(rounds, servers),
        "scaling": lambda: scaling(min(rounds, 3), servers),
        "catch-up": lambda: catch_up(servers),
    }
    for name, make in tables.items():
        if not only or any(word in name for word in only):
            make()
