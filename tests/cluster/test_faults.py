"""Everything the client does at once, on three nats-servers of which one is killed, frozen or cut off.

Here each of three faults is played once; ``make cluster`` plays all of them HEADRACE_ROUNDS times.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster_work import WORK, Windowed, Work
from headrace.client import Connection, connect
from headrace.client.events import Event, LeaderWaitOver, WaitingForLeader
from nats_cluster import Cluster, Clusters, Node, SickServersError
from waiting import until, until_here

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

ROUNDS = int(os.environ.get("HEADRACE_ROUNDS", "0"))
PROGRESS_S, END_S = 20.0, 30.0
NEW_LEADER_S = 40.0  # votes that are split take another 4 to 9 seconds
_numbers = itertools.count(1)


def killed(cluster: Cluster, leader: Node, stream: str) -> None:
    leader.kill()
    new_leader(cluster, leader, stream)
    leader.start_again()


def restarted_one_after_another(cluster: Cluster, leader: Node, stream: str) -> None:
    for node in [leader, *cluster.others(leader)]:
        node.server.stop()
        node.start_again()
        cluster.wait_until_ready()


def frozen(cluster: Cluster, leader: Node, stream: str) -> None:
    leader.freeze()
    new_leader(cluster, leader, stream)
    leader.thaw()
    cluster.wait_until_agreed(stream)


def cut_off(cluster: Cluster, leader: Node, stream: str) -> None:
    """From the other servers; clients reach it, and it believes for a while that it leads."""
    cluster.cut_off(leader)
    new_leader(cluster, leader, stream)
    cluster.mend()
    cluster.wait_until_agreed(stream)


def new_leader(cluster: Cluster, old: Node, stream: str) -> None:
    try:
        until_here(
            lambda: any(node.leads(stream) for node in cluster.others(old)),
            f"nobody else leads {stream!r}",
            within=NEW_LEADER_S,
        )
    except AssertionError as error:
        raise SickServersError(str(error)) from error


FAULTS: list[Callable[[Cluster, Node, str], None]] = [
    killed,
    restarted_one_after_another,
    frozen,
    cut_off,
]


FOLLOWED_AT_ONCE = (restarted_one_after_another, frozen)
"""Where the next leader may take over without a gap: the one before steps down, or wakes up."""


async def progress(works: list[Work], running: list[asyncio.Task[None]], cluster: Cluster) -> None:
    """Until all of them have done something more. If some have not for long, the servers have to be well
    before anybody is blamed: one that does not catch up with a stream is started again."""
    before = [work.done for work in works]

    def stuck() -> list[str]:
        for task in running:
            if task.done():
                task.result()  # says what ended it
                raise AssertionError(f"{task.get_name()} has ended by itself")
        return [w.name for w, done in zip(works, before, strict=True) if w.done <= done]

    try:
        await until(lambda: not stuck(), "no progress", within=PROGRESS_S)
    except AssertionError:
        print(f"no progress: {stuck()}")
        await asyncio.to_thread(cluster.wait_until_ready)
        try:
            await until(lambda: not stuck(), "no progress", within=PROGRESS_S)
        except AssertionError as error:
            for work in works:
                if work.name in stuck():
                    error.add_note(await work.where())
            raise


@pytest.mark.parametrize("hurt", FAULTS if ROUNDS else FAULTS[:1], ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("round_", range(max(ROUNDS, 1)))
async def test_all_work_survives_a_leader(
    clusters: Clusters,
    tmp_path: Path,
    hurt: Callable[[Cluster, Node, str], None],
    round_: int,
) -> None:
    try:
        await survive(await asyncio.to_thread(clusters.whole), tmp_path / "first", hurt)
    except SickServersError as error:
        # Of the servers, whatever the client does: the round cannot be judged, and is played once more.
        print(f"\n{hurt.__name__}: {error}; once more on other servers")
        await asyncio.to_thread(clusters.give_up)
        await survive(await asyncio.to_thread(clusters.whole), tmp_path / "again", hurt)


async def survive(cluster: Cluster, area: Path, hurt: Callable[[Cluster, Node, str], None]) -> None:
    """Every kind of work begins, a leader is hurt, and all of it is whole at the end."""
    area.mkdir()
    run = f"R{next(_numbers)}"
    events: list[Event] = []
    async with connect(cluster.urls, ping_interval=1, on_event=events.append) as connection:
        js = connection.jetstream(timeout=2)
        works: list[Work] = [kind(js, f"{run}-{name}", area) for name, kind in WORK.items()]
        running: list[asyncio.Task[None]] = []
        try:
            for work in works:
                await work.prepare()
            running = [asyncio.create_task(work.run(), name=work.name) for work in works]
            stream = f"{run}-windowed"
            leader = await asyncio.to_thread(cluster.wait_for_leader, stream)
            await progress(works, running, cluster)
            await asyncio.to_thread(hurt, cluster, leader, stream)
            await progress(works, running, cluster)
            for work in works:
                work.stopping.set()
            async with asyncio.timeout(END_S):
                await asyncio.gather(*running)
            await asyncio.to_thread(cluster.wait_until_ready)
            for work in works:
                if hurt in FOLLOWED_AT_ONCE and type(work) is Windowed:
                    work.in_order = False  # single messages may change places: see docs/client.md
                await work.check()
        finally:
            for task in running:
                task.cancel()
            for work in works:
                await work.end()
        for name in [name async for name in js.stream_names()]:
            await js.delete_stream(name)
        check_events(connection, events, hurt)
    if ROUNDS:
        waits = [event.waited for event in events if isinstance(event, LeaderWaitOver)]
        longest = max(waits, default=0.0)
        print(f"\n{hurt.__name__}: {[w.done for w in works]}, longest wait {longest:.1f} s")


def check_events(
    connection: Connection, events: list[Event], hurt: Callable[[Cluster, Node, str], None]
) -> None:
    assert connection.stats().waiting_for_leader == 0
    began = [event.of for event in events if isinstance(event, WaitingForLeader)]
    ended = [event for event in events if isinstance(event, LeaderWaitOver)]
    assert len(began) == len(ended)
    if hurt is killed:
        assert any(event.found for event in ended)  # or nothing was proved
