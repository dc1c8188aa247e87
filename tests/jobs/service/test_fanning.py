"""Jobs of stored messages: at once where they are few, and otherwise some in each of several transactions."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.jobs import limits
from headrace.jobs.errors import DatabaseUnavailableError, JobsError
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.models import Consumer, NewMessage, Options, Waiting
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service import fanning, removing, storing
from headrace.jobs.service.definitions import channels, consumers, definitions
from headrace.jobs.service.leases import Held, completed
from headrace.jobs.service.publishing import publishing
from headrace.jobs.service.storing import Fresh, store_messages
from headrace.jobs.store import Tx, open_database
from jobs_world import PRODUCER, World, claim_of, end_of, http_of

CONSUMERS = ("k", "k2", "k3")
FEW = 6
"""Jobs of one transaction, instead of a great many: two messages for three consumers."""
_NAMES = itertools.count()


class AnyVersion(definitions.Precondition):
    """Whatever the version is."""

    def check(self, updated_us: int) -> None:
        pass


class Killed(BaseException):
    """The process is gone, and with it the transaction that was under way."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each transaction made, of which none may make more than a few."""
    monkeypatch.setattr(limits, "FAN_OUT_MAX", FEW)
    counts: list[int] = []
    transactions: list[Tx] = []
    make = fanning.make_jobs

    def counted(tx: Tx, messages: Sequence[Any], *args: Any) -> Counter[int]:
        jobs = make(tx, messages, *args)
        if not (transactions and transactions[-1] is tx):
            transactions.append(tx)
            counts.append(0)
        counts[-1] += jobs.total()
        return jobs

    monkeypatch.setattr(fanning, "make_jobs", counted)
    monkeypatch.setattr(storing, "make_jobs", counted)
    return counts


@pytest.fixture
async def three(world: World, made: list[int]) -> World:
    """A channel with three consumers."""
    for name in CONSUMERS[1:]:
        await world.consumer(name, type="pull", token="kt")
    return world


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the slice of this number, counted from 0, end with its process before it is committed."""
    make, numbers = fanning.make_some, itertools.count()

    def killed(tx: Tx, messages: Sequence[fanning.Fanned], now: int) -> Counter[int]:
        jobs = make(tx, messages, now)
        if next(numbers) == number:
            raise Killed
        return jobs

    monkeypatch.setattr(fanning, "make_some", killed)


def one_slice(tx: Tx, channel_seq: int, now: int) -> None:
    """Make some of the jobs that a channel waits for."""
    if (last := fanning.last_waiting(tx, channel_seq)) is not None:
        found = fanning.next_slice(tx, last)
        assert found is not None
        fanning.make_some(tx, found.messages, now)


async def batch(world: World, *payloads: str, **fields: Any) -> Any:
    messages = [{"payload": payload, **fields} for payload in payloads]
    answer = await world.http.post(
        "/v2/channel/c/messages/batch", json={"messages": messages}, headers=PRODUCER
    )
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["messages"]


async def store(world: World, *payloads: str, **fields: Any) -> None:
    """Store a batch as one whose publisher is gone before its jobs are made."""
    now = world.runtime.now_us()
    seq = await world.runtime.database.read(lambda tx: channels.find_channel(tx, "c").seq)
    fresh = [
        Fresh(seq, None, NewMessage(payload=payload.encode(), **fields), filtered=True)
        for payload in payloads
    ]
    await world.runtime.database.write(lambda tx: store_messages(tx, fresh, now))


async def enqueued(world: World) -> float:
    text = (await world.http.get("/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("jobs_enqueued_total{")]
    return sum(float(line.split()[-1]) for line in lines)


NAMES = [f"{number}" for number in range(9)]


async def test_a_large_batch_becomes_jobs_in_several_small_transactions(
    three: World, made: list[int]
) -> None:
    answer = await batch(three, *NAMES)
    assert [one["jobs"] for one in answer] == [3] * 9, "the answer waits for all of them"
    assert sum(made) == 27
    assert max(made) == FEW
    for name in CONSUMERS:
        assert await three.payloads(name) == NAMES
    assert await enqueued(three) == 27


async def test_what_is_small_becomes_jobs_in_the_transaction_that_stores_it(
    three: World, made: list[int]
) -> None:
    await batch(three, "0", "1")
    assert made == [6]


async def test_as_many_evaluations_of_filters_as_jobs_are_made_in_one_transaction(
    three: World, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a large filter cost more than a job does."""
    await three.set_filter(headers={"X-Kind": ["paid"]})
    takers = fanning._takers
    transactions: list[Tx] = []

    def counted(tx: Tx, one: fanning.Fanned) -> list[int]:
        transactions.extend([tx] * len(CONSUMERS))
        return takers(tx, one)

    monkeypatch.setattr(fanning, "_takers", counted)
    answer = await batch(three, *NAMES, headers={"X-Kind": "open"})
    assert [one["jobs"] for one in answer] == [2] * 9
    assert max(transactions.count(tx) for tx in transactions) == FEW
    assert len(transactions) == 27, "each message is looked at once"


async def test_costly_filters_are_asked_while_nobody_waits_for_the_writer(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a single message."""
    await three.set_filter(headers={"X-Kind": [f"{'*ab' * 60}*{number}" for number in range(4)]})
    asked: list[Tx] = []
    wrote: list[Tx] = []
    takers, make = fanning._takers, fanning.make_some

    def asking(tx: Tx, one: fanning.Fanned) -> list[int]:
        asked.append(tx)
        return takers(tx, one)

    def making(tx: Tx, messages: Sequence[fanning.Fanned], now: int) -> Counter[int]:
        wrote.append(tx)
        return make(tx, messages, now)

    monkeypatch.setattr(fanning, "_takers", asking)
    monkeypatch.setattr(fanning, "make_some", making)
    answer = await batch(three, "x", headers={"X-Kind": f"{'ab' * 60}3"})
    assert [one["jobs"] for one in answer] == [3]
    assert len(asked) == len(wrote) == 1
    assert asked[0] is not wrote[0]


async def test_a_filter_that_is_changed_meanwhile_leaves_what_was_published_as_it_was(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three.set_filter(headers={"X-Kind": ["paid"]})
    await store(three, *NAMES, headers={"X-Kind": "paid"})
    seq = await three.runtime.database.read(lambda tx: channels.find_channel(tx, "c").seq)
    found = await three.runtime.database.read(
        lambda tx: fanning.next_slice(tx, Waiting(seq, 2**62))
    )
    assert found is not None
    await three.set_filter(headers={"X-Kind": ["open"]})
    now = three.runtime.now_us()
    made = await three.runtime.database.write(lambda tx: fanning.make_some(tx, found.messages, now))
    assert made.total() == FEW
    again = await three.runtime.database.write(
        lambda tx: fanning.make_some(tx, found.messages, now)
    )
    assert again.total() == 0, "of each message once"
    await Maintenance(three.runtime).tick()
    assert await three.payloads() == NAMES[:2]
    assert await three.payloads("k2") == NAMES


async def test_many_small_publications_together_are_bounded_too(
    three: World, made: list[int]
) -> None:
    answers = await asyncio.gather(*(batch(three, name) for name in NAMES))
    assert [one["jobs"] for (one,) in answers] == [3] * 9
    assert max(made) <= FEW


@pytest.mark.parametrize("number", range(5))
async def test_a_process_that_is_killed_at_any_slice_leaves_them_to_the_next(
    three: World,
    number: int,
    service_on: Callable[..., Runtime],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        kill_at(patched, number)
        with pytest.raises(Killed):
            await batch(three, *NAMES, ordering_key="one")
    assert await three.payloads() == NAMES[: 2 * number]
    other = service_on(clock=clock)
    await other.start()
    await Maintenance(other).tick()
    await other.close()
    for name in CONSUMERS:
        found = []
        while jobs := await three.claim(5, consumer=name):
            found += [job["message"]["payload"] for job in jobs]
            await three.lease("complete", consumer=name, jobs=[_held(job) for job in jobs])
        assert found == NAMES, name


def _held(job: dict[str, Any]) -> dict[str, str]:
    return {"id": job["id"], "lease": job["lease"]}


async def test_a_kill_before_the_batch_is_stored_leaves_nothing(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(storing, "_insert", killed)
        with pytest.raises(Killed):
            await batch(three, *NAMES)
    await Maintenance(three.runtime).tick()
    assert await three.payloads() == []
    assert (await three.http.get("/channel/c/messages")).json()["Result"] == []


async def test_a_disk_that_fails_meanwhile_is_told_and_repeating_the_request_adds_nothing(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [{"payload": name, "id": name, "idempotent": True} for name in NAMES]
    path, body = "/v2/channel/c/messages/batch", {"messages": messages}
    make, numbers = fanning.make_some, itertools.count()

    def failing(tx: Tx, messages: Sequence[fanning.Fanned], now: int) -> Counter[int]:
        if next(numbers) == 1:
            raise DatabaseUnavailableError("no room")
        return make(tx, messages, now)

    with monkeypatch.context() as patched:
        patched.setattr(fanning, "make_some", failing)
        answer = await three.http.post(path, json=body, headers=PRODUCER)
    assert answer.status_code == 503, answer.text
    again = await three.http.post(path, json=body, headers=PRODUCER)
    assert (again.status_code, again.json()["messages"][8]["replayed"]) == (200, True)
    await Maintenance(three.runtime).tick()
    assert await three.payloads("k3") == NAMES
    assert await enqueued(three) == 27


async def test_what_is_published_meanwhile_overtakes_nobody(three: World) -> None:
    await store(three, *NAMES)
    (one,) = await batch(three, "last")
    assert one["jobs"] == 3
    assert await three.payloads() == [*NAMES, "last"]


async def test_other_channels_do_not_wait(three: World, made: list[int]) -> None:
    await three.put("/channel/other", token="ct")
    await three.put("/channel/other/consumer/o", type="pull", token="kt")
    await store(three, *NAMES)
    answer = await three.http.post("/v2/channel/other/messages", content="x", headers=PRODUCER)
    assert answer.json()["jobs"] == 1
    assert made[-1] == 1


async def test_a_message_that_waits_for_its_jobs_is_shown_as_acknowledged(three: World) -> None:
    await store(three, *NAMES[:8])
    await store(three, "last", message_id="last")
    shown = (await three.http.get("/channel/c/message/last")).json()
    assert (shown["Status"], shown["DispatchedAt"], shown["Jobs"]) == ("ACKNOWLEDGED", None, [])
    status = (await three.http.get("/channel/c/messages-status")).json()["counts"]
    assert status["ACKNOWLEDGED"]["Count"] == 9
    listed = (await three.http.get("/channel/c/messages?status=101")).json()["Result"]
    assert listed[0] == "/channel/c/message/last"
    assert len(listed) == 9
    assert (await three.http.get("/channel/c/messages?status=102")).json()["Result"] == []
    await Maintenance(three.runtime).tick()
    shown = (await three.http.get("/channel/c/message/last")).json()
    assert (shown["Status"], len(shown["Jobs"])) == ("DISPATCHED", 3)
    assert (await three.http.get("/channel/c/messages?status=101")).json()["Result"] == []


async def test_nobody_cancels_it_as_if_it_were_scheduled(three: World) -> None:
    await store(three, *NAMES[:8])
    await store(three, "last", message_id="last")
    answer = await three.http.delete("/channel/c/scheduled-message/last", headers=PRODUCER)
    assert answer.status_code == 404, answer.text


async def test_consumers_that_come_and_go_meanwhile(three: World) -> None:
    """Who goes gets no more of it; who comes gets what is still to be made."""
    await store(three, *NAMES)
    seq = await three.runtime.database.read(lambda tx: channels.find_channel(tx, "c").seq)
    now = three.runtime.now_us()
    await three.runtime.database.write(lambda tx: one_slice(tx, seq, now))
    await three.consumer("k4", type="pull", token="kt")
    any_version = AnyVersion()
    await three.runtime.database.write(
        lambda tx: removing.remove_consumer(tx, "c", "k3", any_version, now)
    )
    await Maintenance(three.runtime).tick()
    assert await three.payloads("k") == NAMES
    assert await three.payloads("k4") == NAMES[2:]


async def test_a_channel_with_messages_that_wait_is_not_done(three: World) -> None:
    await store(three, *NAMES)
    write, now, any_version = three.runtime.database.write, three.runtime.now_us(), AnyVersion()
    with pytest.raises(JobsError, match="drain the channel"):
        await write(lambda tx: removing.remove_channel(tx, "c", any_version, now, discard=False))
    await write(lambda tx: removing.remove_channel(tx, "c", any_version, now, discard=True))
    for _ in range(5):
        await Maintenance(three.runtime).tick()
    left = await three.runtime.database.read(lambda tx: tx.all("waiting_channels"))
    assert left == []


async def test_one_that_is_to_be_unique_is_known_before_it_has_jobs(three: World) -> None:
    await store(three, *NAMES)
    unique = {"by": ["payload"], "while": ["QUEUED"]}
    for expected in (False, True):
        (one,) = await batch(three, "a", unique=unique)
        assert one["duplicate"] is expected
    assert (await three.payloads()).count("a") == 1


async def test_scheduled_messages_are_dispatched_in_small_transactions_behind_the_others(
    three: World, made: list[int]
) -> None:
    at = three.runtime.now_us() + 200_000_000
    await store(three, *NAMES[:4], scheduled_us=at)
    await store(three, *NAMES[4:])
    three.clock.advance(201)
    now = three.runtime.now_us()
    done = await three.runtime.database.write(
        lambda tx: publishing.dispatch_due(tx, publishing.find_due(tx, now), now)
    )
    assert done.messages == 0, "others of the channel wait for their jobs"
    await Maintenance(three.runtime).tick()
    assert await three.payloads() == [*NAMES[4:], *NAMES[:4]]
    assert max(made) == FEW


async def test_a_feed_s_batch_is_bounded_too_and_a_known_message_is_not_made_twice(
    three: World, made: list[int]
) -> None:
    messages = [NewMessage(payload=name.encode(), message_id=name) for name in NAMES]
    write, now = three.runtime.database.write, three.runtime.now_us()
    assert await write(lambda tx: publishing.feed(tx, "c", messages, now)) == (9, 0)
    again = await write(lambda tx: publishing.feed(tx, "c", messages, now, again=set(NAMES)))
    assert again == (0, 0)
    await Maintenance(three.runtime).tick()
    assert await three.payloads("k2") == NAMES
    assert max(made) == FEW


async def test_two_processes_make_each_job_once_and_in_order(
    three: World, service_on: Callable[..., Runtime], clock: ManualClock
) -> None:
    other = service_on(clock=clock)
    await other.start()
    await store(three, *(f"{number}" for number in range(40)), ordering_key="one")
    await asyncio.gather(*(Maintenance(each).tick() for each in (three.runtime, other) * 2))
    await other.close()
    assert await three.payloads() == [f"{number}" for number in range(40)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 7), st.integers(0, 2)),
        st.tuples(st.just("slice"), st.booleans(), st.just(0)),
        st.tuples(st.just("work"), st.integers(1, 4), st.integers(0, 1)),
        st.tuples(st.sampled_from(["come", "go", "scheduled", "due"]), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@dataclass
class History:
    """A channel of its own: two consumers that stay, others that come and go."""

    runtime: Runtime
    clock: ManualClock
    stored: list[str] = field(default_factory=list)
    keys: dict[str, str | None] = field(default_factory=dict)
    done: dict[str, list[str]] = field(default_factory=dict)
    guests: list[str] = field(default_factory=list)
    came: int = 0

    async def begin(self) -> None:
        self.name, now = f"f{next(_NAMES)}", self.runtime.now_us()
        self.seq = await self.write(
            lambda tx: (
                channels.put_channel(
                    tx, self.name, definitions.Change(token="t"), definitions.Precondition(), now
                ).seq
            )
        )
        self.stay = [await self.consumer(name) for name in ("a", "b")]
        self.done = {"a": [], "b": []}

    async def write(self, work: Callable[[Tx], Any]) -> Any:
        return await self.runtime.database.write(work)

    async def consumer(self, name: str) -> Consumer:
        now = self.runtime.now_us()
        change = consumers.ConsumerChange(kind="pull", token="t", max_retries=3)

        def put(tx: Tx) -> Consumer:
            return consumers.put_consumer(
                tx, self.name, name, change, None, now,
                defaults=Options().default_settings(), max_retries=9, new_secret=lambda: "s",
            )[0]  # fmt: skip

        made: Consumer = await self.write(put)
        return made

    async def publish(self, count: int, key: int, scheduled_us: int | None = None) -> None:
        names = [f"{next(_NAMES)}" for _ in range(count)]
        ordering = None if key == 2 else f"key {key}"
        fresh = [
            Fresh(
                self.seq,
                None,
                NewMessage(payload=name.encode(), ordering_key=ordering, scheduled_us=scheduled_us),
                filtered=False,
            )
            for name in names
        ]
        now = self.runtime.now_us()
        await self.write(lambda tx: store_messages(tx, fresh, now))
        self.stored += names
        self.keys |= dict.fromkeys(names, None if scheduled_us else ordering)

    async def step(self, what: str, first: int, second: int) -> None:
        now = self.runtime.now_us()
        if what == "publish":
            await self.publish(first, second)
        elif what == "scheduled":
            await self.publish(2, 2, now + 5_000_000)
        elif what == "due":
            self.clock.advance(6)
            later = self.runtime.now_us()
            await self.write(
                lambda tx: publishing.dispatch_due(tx, publishing.find_due(tx, later), later)
            )
        elif what == "slice":
            await self.slice(now, killed=bool(first))
        elif what == "work":
            await self.work(first, self.stay[second])
        elif what == "come":
            self.came += 1
            self.guests.append(f"g{next(_NAMES)}")
            await self.consumer(self.guests[-1])
        elif self.guests:
            name = self.guests.pop()
            await self.write(
                lambda tx: removing.remove_consumer(tx, self.name, name, AnyVersion(), now)
            )

    async def slice(self, now: int, *, killed: bool) -> None:
        def some(tx: Tx) -> None:
            one_slice(tx, self.seq, now)
            if killed:
                raise Killed

        try:
            await self.write(some)
        except Killed:
            assert killed

    async def work(self, n: int, consumer: Consumer) -> int:
        jobs = await claim_of(self.runtime, consumer, n, 30)
        now = self.runtime.now_us()
        ends = [completed(Held(job.seq, job.lease)) for job in jobs]
        await self.write(lambda tx: end_of(tx, consumer, ends, now))
        self.done[consumer.consumer_id] += [job.payload.decode() for job in jobs]
        return len(jobs)

    async def end(self) -> None:
        """All that was stored becomes jobs of those who stayed, once; those of a key in order."""
        self.clock.advance(10)
        maintenance = Maintenance(self.runtime)
        await maintenance.tick()
        while await self.runtime.database.read(fanning.waiting_channels):
            await maintenance.tick()
        await maintenance.tick()
        for consumer in self.stay:
            while await self.work(100, consumer):
                pass
            done = self.done[consumer.consumer_id]
            assert sorted(done) == sorted(self.stored)
            for key in {key for key in self.keys.values() if key is not None}:
                of_key = [name for name in self.stored if self.keys[name] == key]
                assert [name for name in done if self.keys[name] == key] == of_key


@pytest.mark.timeout(180)
def test_every_history_gives_each_consumer_each_message_once(
    database_url: str, made: list[int]
) -> None:
    with asyncio.Runner() as runner:
        clock = ManualClock()
        runtime = Runtime(open_database(database_url, threads=1, clock=clock), clock=clock)
        runner.run(runtime.start())

        async def replay(steps: list[tuple[str, int, int]]) -> None:
            history = History(runtime, clock)
            await history.begin()
            for step in steps:
                await history.step(*step)
            await history.end()
            assert max(made, default=0) <= max(FEW, 2 + history.came)

        @settings(max_examples=25, deadline=None)
        @given(STEPS)
        def histories(steps: list[tuple[str, int, int]]) -> None:
            made.clear()
            runner.run(replay(steps))

        try:
            histories()
        finally:
            runner.run(runtime.close())


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_a_key_is_one_at_a_time_whatever_isolation_the_database_has_by_default(
    postgres_url: str, isolation: str
) -> None:
    """A transaction that has waited for the key sees the jobs that were made meanwhile."""
    chosen = quote(f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}")
    sign = "&" if "?" in postgres_url else "?"
    runtime = Runtime(open_database(f"{postgres_url}{sign}options={chosen}", threads=4))
    await runtime.start()
    async with http_of(runtime) as http:
        world = World(http, runtime, ManualClock())
        await world.define()
        stored, begun = threading.Event(), threading.Event()
        seq = await runtime.database.read(lambda tx: channels.find_channel(tx, "c").seq)

        def store(tx: Tx, payload: bytes) -> None:
            message = NewMessage(payload=payload, ordering_key="one")
            store_messages(tx, [Fresh(seq, None, message, filtered=False)], tx.now_us())

        def first(tx: Tx) -> None:
            store(tx, b"first")
            stored.set()
            assert begun.wait(30)

        def second(tx: Tx) -> None:
            assert stored.wait(30)
            begun.set()
            store(tx, b"second")

        await asyncio.gather(*map(runtime.database.write, (first, second)))
        jobs = await world.claim(10)
        assert [job["message"]["payload"] for job in jobs] == ["first"]
    await runtime.close()
