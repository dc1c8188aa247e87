"""A group is changed while its members, the server and who changes it are killed with SIGKILL.

Each round changes the number of partitions, kills one of them at a step of the change, and asks for the
change again. Nothing may be lost or handled out of order, and each change has to end. Here a few rounds are
played on each server; ``make groups`` plays HEADRACE_GROUP_EVENTS / 5. HEADRACE_SEED names the choices.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Final

import pytest

import peers
from group_processes.crowd import ENVIRONMENT, Crowd, Publisher
from group_processes.worklog import Task
from headrace.client import JetStream, connect
from headrace.errors import HeadraceError
from headrace.groups import ElasticGroup, PartitioningFilter, elastic
from portions import one_way
from waiting import until

pytestmark = [pytest.mark.timeout(3600)]

EVENTS = int(os.environ.get("HEADRACE_GROUP_EVENTS", "0"))
SEED = int(os.environ.get("HEADRACE_SEED", "20121215"))
ROUNDS = max(3, EVENTS // 5)
KEYS: Final = [f"k{number}" for number in range(8)]
STREAM, GROUP = "ORDERS", "g"
MEMBERS: Final = ("a", "b")
PHASES: Final = ("closing", "draining", "switching")
VICTIMS: Final = ("member", "server", "changer")
ENDS_WITHIN_S: Final = 60.0


class Rounds:
    """The rounds of one test: who is killed, and when."""

    def __init__(self, js: JetStream, crowd: Crowd, server: peers.ServerProcess, seed: int) -> None:
        self._js = js
        self._crowd = crowd
        self._server = server
        self._chance = random.Random(seed)
        self._partitions = 4
        self.killed: list[str] = []

    async def play(self, number: int) -> None:
        """A change with one kill; the first rounds have one of each kind."""
        victim = VICTIMS[number] if number < len(VICTIMS) else self._chance.choice(VICTIMS)
        phase = self._chance.choice(PHASES)
        others = [each for each in range(2, 9) if each != self._partitions]
        self._partitions = self._chance.choice(others)
        self.killed.append(f"{victim} at {phase}")
        changer = await self._changer()
        try:
            is_under_way = await _said(changer, phase)
            if victim == "member":
                self._kill_member()
            elif victim == "server":
                await self._kill_server()
            if victim == "changer" or not is_under_way:
                await self._end(changer)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDS_WITHIN_S):
                    await changer.wait()
        finally:
            await self._end(changer)
        record = await self._asked_again()
        assert (record.max_members, record.change) == (self._partitions, None), self.killed

    async def _changer(self) -> asyncio.subprocess.Process:
        """The command, in a process of its own."""
        change = ("elastic", "change", STREAM, GROUP, "--partitions", str(self._partitions))
        program = (sys.executable, "-m", "headrace", "group", *change)
        where = ("--server", self._server.url)
        return await asyncio.create_subprocess_exec(
            *program, *where, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=ENVIRONMENT
        )

    async def _end(self, changer: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            changer.kill()
        await changer.wait()

    def _kill_member(self) -> None:
        """Another instance of it joins at once."""
        worker = self._chance.choice(self._crowd.alive)
        self._crowd.kill(worker)
        self._crowd.start(worker.task.member)

    async def _kill_server(self) -> None:
        self._crowd.servers_out()
        await asyncio.to_thread(self._server.kill)
        await until(self._is_back, "the server does not start", within=ENDS_WITHIN_S)
        self._crowd.servers_back()

    async def _is_back(self) -> bool:
        """Try again where the machine has no time for it: who publishes goes on until it is there."""
        try:
            await asyncio.to_thread(self._server.start_again)
        except RuntimeError:
            return False
        return True

    async def _asked_again(self) -> ElasticGroup:
        """The change that was interrupted, whoever asks; of one that is done nothing is left to do."""

        async def again() -> ElasticGroup | None:
            with contextlib.suppress(HeadraceError):  # the server is not back yet
                return await elastic.change(self._js, STREAM, GROUP, max_members=self._partitions)
            return None

        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                record = await until(again, "it does not end", within=ENDS_WITHIN_S)
        except (TimeoutError, AssertionError):
            await self._look_for_the_queue()
            raise
        assert record is not None
        return record

    async def _look_for_the_queue(self) -> None:
        """nats-server that is killed while it writes a stream's configuration can lose the stream."""
        if self._server.name == "nats-server":
            names = [name async for name in self._js.stream_names()]
            if f"{STREAM}-{GROUP}" not in names:
                pytest.skip("nats-server was killed in a change of the work queue, and has lost it")


async def _said(changer: asyncio.subprocess.Process, phase: str) -> bool:
    """Wait until the command says that the change is at ``phase``; False if it was over before."""
    assert changer.stderr is not None
    async for line in changer.stderr:
        if line.startswith(phase.encode()):
            return True
    return False


@pytest.mark.parametrize("server", one_way(["headrace", "nats-server"], "killed"), indirect=True)
async def test_a_change_survives_the_death_of_all_who_take_part(
    server: peers.ServerProcess, tmp_path: Path
) -> None:
    task = Task(server.url, "elastic", STREAM, GROUP, "", "", "", max_ack_pending=16, concurrency=2)
    async with connect(server.url, ping_interval=0.5, reconnect_wait=0.05) as connection:
        js = connection.jetstream(timeout=2)
        await js.create_stream(name=STREAM, subjects=["orders.*"])
        by_key = [PartitioningFilter("orders.*", (1,))]
        await elastic.create(js, STREAM, GROUP, 4, partitioning_filters=by_key, members=MEMBERS)
        try:
            with Crowd(tmp_path, task) as crowd:
                await live(crowd, js, server)
        finally:
            for name in [name async for name in js.stream_names()]:
                await js.delete_stream(name)


async def live(crowd: Crowd, js: JetStream, server: peers.ServerProcess) -> None:
    rounds = Rounds(js, crowd, server, SEED)
    await crowd.until_joined(*(crowd.start(member) for member in MEMBERS))
    async with Publisher(js, crowd, KEYS) as publisher:
        for number in range(ROUNDS):
            await crowd.until_handled(20)
            await rounds.play(number)
        await crowd.until_handled(20)
        published = await publisher.finish()
    await crowd.until_all_handled(published)
    for worker in crowd.alive:
        await crowd.stop(worker)
    verdict = crowd.judge(published)
    print(f"seed {SEED}: {', '.join(rounds.killed)}\n{verdict}")
    assert not verdict.faults, f"seed {SEED}:\n{verdict}"
    record = await elastic.get(js, STREAM, GROUP)
    assert (record.changed, record.change) == (ROUNDS, None)
