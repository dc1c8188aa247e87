"""Members of a group as processes, what is done to them, and the messages they are to handle."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from group_processes.strangers import Stranger
from group_processes.worklog import Line, Log, Task, parse
from group_processes.worklog_checker import SERVERS, Verdict, check
from headrace.client import JetStream
from headrace.errors import HeadraceError
from waiting import until

__all__ = ["Crowd", "PeerVerbs", "Publisher", "Worker"]

TESTS = Path(__file__).resolve().parents[1]
# Processes start and end, and servers come back, while others load the cores.
STOP_S = 60.0
START_S = 60.0
HANDLED_S = 60.0
OURS = (sys.executable, "-W", "error", "-m", "group_processes.our_worker")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": ""}


@dataclass
class Worker:
    """One instance of a member: a process, as long as it lives."""

    task: Task
    command: Sequence[str | Path]
    process: subprocess.Popen[bytes]
    hurt: bool = False  # frozen, or cut off

    @property
    def name(self) -> str:
        return self.task.worker

    @property
    def is_peer(self) -> bool:
        """Whether it is of the other implementation."""
        return self.name.startswith("peer-")

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None


class Crowd:
    """Starts members and hurts them; keeps their log. A context manager that leaves no process behind.

    ``task`` is what all of them are told, but for who they are. ``stranger`` is the implementation of the
    members that are not ours.
    """

    def __init__(self, directory: Path, task: Task, stranger: Stranger | None = None) -> None:
        self.task = replace(task, log=str(directory / "members.log"))
        self._directory = directory
        self._stranger = stranger
        self._numbers = itertools.count(1)
        self._log = Log(self.task.log, "test")
        self._tail = (directory / "members.log").open()
        self._unread = ""
        self.workers: list[Worker] = []
        self.lines: list[Line] = []
        self.done: dict[str, set[int]] = {}
        self.joined: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait(STOP_S)
        if error is not None:
            error.add_note(self.report())
        self._log.close()
        self._tail.close()

    # Members

    def start(self, member: str, *, peer: bool = False, url: str = "") -> Worker:
        """One more instance of a member."""
        kind = "peer" if peer else "ours"
        name = f"{kind}-{member}-{next(self._numbers)}"
        task = replace(self.task, member=member, worker=name, url=url or self.task.url)
        assert not peer or self._stranger is not None, "who are the peers?"
        program = self._stranger.worker if peer and self._stranger else OURS
        command = [*program, task.argument()]
        worker = Worker(task, command, self._spawn(name, command))
        self.workers.append(worker)
        return worker

    def _spawn(self, name: str, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        with (self._directory / f"{name}.out").open("ab") as out:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=ENVIRONMENT
            )

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.is_alive]

    def is_well(self, worker: Worker) -> bool:
        """Whether it takes part, and nothing is done to it."""
        return worker.is_alive and worker.name in self.joined and not worker.hurt

    async def stop(self, worker: Worker) -> None:
        """Ask it to leave, and wait until it has: it must have ended well."""
        worker.process.send_signal(signal.SIGTERM)
        await until(lambda: not worker.is_alive, f"{worker.name} did not leave", within=STOP_S)
        assert worker.process.returncode == 0, self.said(worker)

    def kill(self, worker: Worker) -> None:
        worker.process.kill()
        worker.process.wait(STOP_S)
        self.note("killed", worker.name)

    def freeze(self, worker: Worker) -> None:
        self.cut_off(worker)
        worker.process.send_signal(signal.SIGSTOP)

    def thaw(self, worker: Worker) -> None:
        self.mended(worker)
        worker.process.send_signal(signal.SIGCONT)

    def cut_off(self, worker: Worker) -> None:
        """Note that it will not hear the servers."""
        self.note("out", worker.name)
        worker.hurt = True

    def mended(self, worker: Worker) -> None:
        """Note that it will hear them again; before it does, so that nothing it does is noted earlier."""
        worker.hurt = False
        self.note("back", worker.name)

    def servers_out(self) -> None:
        self.note("out", SERVERS)

    def servers_back(self) -> None:
        self.note("back", SERVERS)

    def note(self, what: str, worker: str) -> None:
        self._log.note(what, worker=worker)

    # What they did

    def read(self) -> list[Line]:
        """What was appended since; all of it is in ``lines``, what was handled in ``done``."""
        text = self._unread + self._tail.read()
        whole, _, self._unread = text.rpartition("\n")
        news = [parse(line) for line in whole.splitlines()]
        self.lines += news
        for line in news:
            if line.what == "joined":
                self.joined.add(line.worker)
            elif line.what == "done":
                self.done.setdefault(line.details[0], set()).add(int(line.details[1]))
        return news

    def handled(self) -> int:
        """How many different messages were handled so far."""
        self.read()
        return sum(map(len, self.done.values()))

    async def until_handled(self, more: int, *, within: float = HANDLED_S) -> None:
        """Until so many more messages were handled than by now."""
        wanted = self.handled() + more
        await until(lambda: self.handled() >= wanted, f"{more} more are not handled", within=within)

    async def until_all_handled(
        self, published: dict[str, int], *, within: float = HANDLED_S
    ) -> None:
        total = sum(published.values())
        await until(lambda: self.handled() >= total, f"not all {total} are handled", within=within)

    async def until_joined(self, *workers: Worker) -> None:
        def joined() -> bool:
            self.read()
            assert all(worker.is_alive for worker in workers), self.report()
            return self.joined >= {worker.name for worker in workers}

        await until(joined, "not all have joined", within=START_S)

    def owner(self, key: str = "") -> Worker | None:
        """The living worker who handled a message (of a key) last."""
        self.read()
        alive = {worker.name: worker for worker in self.alive}
        for line in reversed(self.lines):
            if line.what == "done" and line.worker in alive and key in ("", line.details[0]):
                return alive[line.worker]
        return None

    def judge(self, published: dict[str, int]) -> Verdict:
        self.read()
        return check(sorted(self.lines, key=lambda line: line.at), published)

    def said(self, worker: Worker) -> str:
        return (self._directory / f"{worker.name}.out").read_text()[-3000:]

    def report(self) -> str:
        """What happened last, for who reads of a failure."""
        self.read()
        whats = Counter((line.worker, line.what) for line in self.lines)
        seldom = [
            line for line in self.lines if line.what not in ("begun", "done", "acked", "sent")
        ]
        outputs = [f"{w.name}: {said}" for w in self.workers if (said := self.said(w))]
        last = [f"{line}" for line in [*seldom[-30:], *self.lines[-10:]]]
        return "\n".join([f"{dict(whats)}", *last, *outputs])


class Publisher:
    """Publishes to all keys in turn, each message when the one before it is stored, whatever it takes; waits
    while too many are not handled."""

    def __init__(self, js: JetStream, crowd: Crowd, keys: Sequence[str], ahead: int = 50) -> None:
        self._js = js
        self._crowd = crowd
        self._ahead = ahead
        self._pause = 0.005
        self.published = dict.fromkeys(keys, 0)
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.finish()

    async def finish(self) -> dict[str, int]:
        """Stop; how many messages each key has."""
        self._over.set()
        assert self._task is not None
        await self._task
        return self.published

    async def _run(self) -> None:
        while not self._over.is_set():
            for key in self.published:
                await self.publish(key)
            while sum(self.published.values()) > self._crowd.handled() + self._ahead:
                if self._over.is_set():
                    break
                await asyncio.sleep(self._pause)

    async def publish(self, key: str, count: int = 1) -> None:
        for number in range(self.published[key], self.published[key] + count):
            payload = f"{key} {number}".encode()
            while True:
                try:
                    await self._js.publish(
                        f"orders.{key}", payload, msg_id=f"{key}-{number}", timeout=2
                    )
                    break
                except HeadraceError:
                    await asyncio.sleep(self._pause)  # the server is away, or has no leader
            self.published[key] = number + 1


class PeerVerbs:
    """The verbs of the other implementation, called in a process of its own."""

    def __init__(self, stranger: Stranger, url: str) -> None:
        command = [*stranger.verbs, url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=STOP_S)

    async def __call__(self, verb: str, *arguments: Any) -> Any:
        answer = await asyncio.to_thread(self._ask, [verb, *arguments])
        if "error" in answer:
            raise PeerRefusalError(answer["error"])
        return answer["value"]

    def _ask(self, call: list[Any]) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(call) + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer


class PeerRefusalError(Exception):
    """The other implementation raised an error; the text is its."""
