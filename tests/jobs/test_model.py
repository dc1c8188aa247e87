"""Random histories of jobs, on both databases, against a model of a few lines."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.jobs.errors import JobsError
from headrace.jobs.models import Consumer, NewMessage, Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service import finding, leases, page_reads, replaying
from headrace.jobs.service.definitions import channels, consumers, definitions
from headrace.jobs.service.leases import Held
from headrace.jobs.service.storing import Fresh, store_messages
from headrace.jobs.states import State
from headrace.jobs.store import Tx, open_database
from jobs_world import claim_of, end_of

MAX_RETRIES = 2
LEASE_S = 10
TIMEOUT_S = 32.25
DELAY_S = 5
_NAMES = itertools.count()

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 2)),
        st.tuples(st.just("claim"), st.integers(1, 3)),
        st.tuples(
            st.sampled_from(["complete", "fail", "bury", "release", "beat"]), st.integers(0, 9)
        ),
        st.tuples(st.sampled_from(["stale", "requeue", "delete", "cancel"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["INFLIGHT", "DELIVERED", "DEAD", "QUEUED"]), st.integers(0, 9)),
        st.tuples(st.just("sleep"), st.integers(0, 40)),
    ),
    max_size=40,
)


@dataclass
class Job:
    """What the model knows of a job."""

    seq: int
    priority: int
    state: State = State.QUEUED
    retries: int = 0
    due: float = 0.0
    expires: float = 0.0
    lease: str | None = None
    old_leases: list[str] = field(default_factory=list)
    cancelled: bool = False

    def leave(self, state: State, due: float = 0.0) -> None:
        if self.lease:
            self.old_leases.append(self.lease)
        self.state, self.lease, self.due = state, None, due

    def fail(self, due: float) -> None:
        if self.cancelled:
            self.leave(State.DEAD)
        elif self.retries < MAX_RETRIES:
            self.retries += 1
            self.leave(State.QUEUED, due)
        else:
            self.leave(State.DEAD)


class History:
    """One consumer of its own, driven through the service and through the model."""

    def __init__(self, runtime: Runtime, clock: ManualClock) -> None:
        self.runtime = runtime
        self.clock = clock
        self.jobs: dict[int, Job] = {}

    @property
    def now(self) -> float:
        return self.clock.monotonic_ns() / 1e9

    async def write(self, work: Any) -> Any:
        return await self.runtime.database.write(work)

    async def begin(self) -> None:
        name, now = f"n{next(_NAMES)}", self.runtime.now_us()

        def define(tx: Tx) -> Consumer:
            channels.put_channel(
                tx, name, definitions.Change(token="t"), definitions.Precondition(), now
            )
            change = consumers.ConsumerChange(kind="pull", token="t", max_retries=MAX_RETRIES)
            return consumers.put_consumer(
                tx, name, "k", change, None, now,
                defaults=Options(retry_delays_s=(DELAY_S,)).default_settings(), max_retries=9,
                new_secret=lambda: "s",
            )[0]  # fmt: skip

        self.consumer = await self.write(define)

    async def step(self, what: str, number: int) -> None:
        now = self.runtime.now_us()
        if what == "publish":
            await self.publish(number, now)
        elif what == "sleep":
            self.clock.advance(number)
            later = self.runtime.now_us()
            await self.write(lambda tx: leases.expire_leases(tx, later))
            for job in self.jobs.values():
                if job.state is State.INFLIGHT and job.expires <= self.now + 1e-9:
                    job.fail(self.now)
        elif what == "claim":
            await self.claim(number)
        elif self.jobs:
            job = self.jobs[sorted(self.jobs)[number % len(self.jobs)]]
            if what in State.__members__:
                await self.legacy(job, what, now)
            elif what == "cancel":
                await self.cancel(job, now)
            elif what in {"requeue", "delete"}:
                await self.dead(job, what, now)
            else:
                await self.leased(job, what, now)

    async def publish(self, priority: int, now: int) -> None:
        message = NewMessage(payload=b"x", priority=priority)
        fresh = Fresh(self.consumer.channel_seq, None, message, filtered=False)
        await self.write(lambda tx: store_messages(tx, [fresh], now))
        rows = await self.runtime.database.read(
            lambda tx: leases.list_queued(tx, self.consumer, 100)
        )
        for row in rows:
            self.jobs.setdefault(row["seq"], Job(row["seq"], priority))

    async def claim(self, n: int) -> None:
        claimed = await claim_of(self.runtime, self.consumer, n, LEASE_S)
        ready = [
            j for j in self.jobs.values() if j.state is State.QUEUED and j.due <= self.now + 1e-9
        ]
        ready.sort(key=lambda job: (-job.priority, job.seq))
        assert [job.seq for job in claimed] == [job.seq for job in ready[:n]]
        for job in claimed:
            model = self.jobs[job.seq]
            model.state, model.lease, model.expires = State.INFLIGHT, job.lease, self.now + LEASE_S

    async def leased(self, job: Job, what: str, now: int) -> None:
        held = Held(
            job.seq,
            job.old_leases[-1] if what == "stale" and job.old_leases else job.lease or "none",
        )
        holds = job.state is State.INFLIGHT and job.lease == held.lease

        def end(tx: Tx, ending: leases.Ending) -> list[leases.Result]:
            return end_of(tx, self.consumer, [ending], now)

        verbs = {
            "complete": lambda tx: end(tx, leases.completed(held)),
            "stale": lambda tx: end(tx, leases.completed(held)),
            "release": lambda tx: end(tx, leases.released(held, 3)),
            "beat": lambda tx: leases.heartbeat(tx, self.consumer, [held], LEASE_S, now),
            "fail": lambda tx: end(tx, leases.failed(held, "no")),
            "bury": lambda tx: end(tx, leases.failed(held, "no", dead=True)),
        }
        (result,) = await self.write(verbs[what])
        if holds and what == "beat" and job.cancelled:
            assert (result.status, result.code) == (409, "cancelled")
            return
        if not holds:
            again = what in {"complete", "stale"} and job.state is State.DELIVERED
            assert result.status == 409 or (again and result.status == 200)
            return
        assert result.status == 200
        if what in {"complete", "stale"}:
            job.leave(State.DELIVERED)
        elif what == "release":
            job.leave(State.DEAD if job.cancelled else State.QUEUED, self.now + 3)
        elif what == "beat":
            job.expires = self.now + LEASE_S
        elif what == "bury":
            job.leave(State.DEAD)
        else:
            job.fail(self.now + DELAY_S * max(1, job.retries + 1))

    async def legacy(self, job: Job, asked: str, now: int) -> None:
        allowed = {
            (State.QUEUED, "INFLIGHT"), (State.DEAD, "INFLIGHT"),
            (State.INFLIGHT, "DELIVERED"), (State.INFLIGHT, "DEAD"),
        }  # fmt: skip
        same = job.state.name == asked
        fine = same or (
            (job.state, asked) in allowed and not (job.state is State.INFLIGHT and job.lease)
        )
        try:
            await self.write(
                lambda tx: leases.change_state(tx, self.consumer, job.seq, asked, 0, Options(), now)
            )
        except JobsError as error:
            assert not fine
            assert error.status == 400
            return
        assert fine
        if not same:
            job.retries += job.state is State.DEAD
            job.cancelled = job.cancelled and job.state is not State.DEAD
            job.leave(State[asked])
            job.expires = self.now + TIMEOUT_S

    async def cancel(self, job: Job, now: int) -> None:
        channel = self.consumer.channel_seq
        try:
            await self.write(
                lambda tx: finding.cancel_job(tx, channel, job.seq, None, now, dry_run=False)
            )
        except JobsError as error:
            assert job.state in {State.DELIVERED, State.DEAD}
            assert error.status == 409
            return
        job.cancelled = True
        if job.state is State.QUEUED:
            job.leave(State.DEAD)
        else:
            assert job.state is State.INFLIGHT

    async def dead(self, job: Job, what: str, now: int) -> None:
        try:
            if what == "requeue":
                await self.write(
                    lambda tx: replaying.requeue_dead_job(tx, self.consumer, job.seq, now)
                )
            else:
                await self.write(lambda tx: replaying.delete_dead_job(tx, self.consumer, job.seq))
        except JobsError as error:
            assert job.state is not State.DEAD
            assert error.status in {400, 404}
            return
        assert job.state is State.DEAD
        if what == "requeue":
            job.leave(State.QUEUED)
            job.retries, job.cancelled = 0, False
        else:
            del self.jobs[job.seq]

    async def check(self) -> None:
        """The database says what the model says; its counts are the sums."""

        def read(tx: Tx) -> tuple[dict[int, tuple[int, int]], dict[State, int]]:
            found = {}
            for seq in self.jobs:
                row, _ = page_reads.get_job(tx, seq)
                found[seq] = (row["state"], row["retries"])
            counts = {row["seq"]: counts for row, counts in page_reads.consumer_counts(tx)}
            return found, counts.get(self.consumer.seq, {})

        found, counts = await self.runtime.database.read(read)
        assert found == {job.seq: (job.state, job.retries) for job in self.jobs.values()}
        for state in State:
            assert counts.get(state, 0) == sum(job.state is state for job in self.jobs.values())


@pytest.mark.timeout(120)
def test_every_history_ends_as_the_model_says(database_url: str) -> None:
    with asyncio.Runner() as runner:
        clock = ManualClock()
        runtime = Runtime(
            open_database(database_url, threads=1, clock=clock), clock=clock, random=lambda: 0.5
        )
        runner.run(runtime.start())

        async def replay(steps: list[tuple[str, int]]) -> None:
            history = History(runtime, clock)
            await history.begin()
            for what, number in steps:
                await history.step(what, number)
                await history.check()

        @settings(max_examples=25, deadline=None)
        @given(STEPS)
        def histories(steps: list[tuple[str, int]]) -> None:
            runner.run(replay(steps))

        try:
            histories()
        finally:
            runner.run(runtime.close())
