"""The groups for threads: verbs, handlers on threads of their own, iteration, leaving, failing."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import peers
from headrace import groups, sync
from headrace.api.consumers import ConsumerConfig
from headrace.errors import (
    ConfigurationError,
    ConnectionClosedError,
    RequestTimeoutError,
)
from headrace.sync.groups import (
    GroupConfigurationError,
    GroupExistsError,
    GroupMessage,
    GroupNotFoundError,
    HandlerFailedError,
    MemberMapping,
    MemberNotActiveError,
    Membership,
    NotOwnedError,
    PartitioningFilter,
    Retry,
    elastic,
    static,
)
from headrace.sync.groups.exactly_once import exactly_once, was_acknowledged
from waiting import until_here

pytestmark = pytest.mark.peer

SOON = ConsumerConfig(ack_wait=1.0, max_ack_pending=10)


@pytest.fixture
def js(reference_server: peers.ServerProcess) -> Iterator[sync.JetStream]:
    """A context with a stream ``S`` in an account that is empty afterwards, and no thread left."""
    threads = threading.active_count()
    with sync.connect(reference_server.url) as connection:
        js = connection.jetstream()
        js.create_stream(name="S", subjects=["s.*", "0.s"], storage="memory")
        yield js
        for name in list(js.stream_names()):
            if name != "KEPT" and name[:3] != "KV_":
                js.delete_stream(name)
        for bucket in list(js.key_values()):
            js.stream(f"KV_{bucket}").purge()
    until_here(lambda: threading.active_count() <= threads, "threads are left")


@pytest.fixture
def group(js: sync.JetStream) -> str:
    """An elastic group with one member, and 40 messages of 4 keys."""
    by_key = [PartitioningFilter("s.*", (1,))]
    elastic.create(js, "S", "g", 4, partitioning_filters=by_key, members=["m"])
    for number in range(40):
        js.publish(f"s.{number % 4}", b"%d" % number)
    return "g"


def join(js: sync.JetStream, group: str, handler: Any = None, **more: Any) -> Any:
    return elastic.join(js, "S", group, "m", handler, SOON, **more)


def in_order(seen: list[tuple[str, int]]) -> bool:
    by_key = {subject: [n for s, n in seen if s == subject] for subject, _ in seen}
    return all(numbers == sorted(numbers) for numbers in by_key.values())


def test_every_verb(js: sync.JetStream) -> None:
    made = elastic.create(js, "S", "g", 2)
    assert elastic.create(js, "S", "g", 2) == made == elastic.get(js, "S", "g")
    assert elastic.add_members(js, "S", "g", ["a", "b"]).members == ("a", "b")
    assert elastic.drop_members(js, "S", "g", ["a"]).members == ("b",)
    assert elastic.active_members(js, "S", "g") == []
    assert elastic.is_active(js, "S", "g", "b") is False
    with pytest.raises(MemberNotActiveError):
        elastic.step_down(js, "S", "g", "b")
    mapped = elastic.set_mappings(js, "S", "g", [MemberMapping("x", (0, 1))])
    assert elastic.list(js, "S") == [mapped]
    assert elastic.delete_mappings(js, "S", "g").assignment() == {}
    elastic.delete(js, "S", "g")
    with pytest.raises(GroupNotFoundError):
        elastic.get(js, "S", "g")
    assert static.create(js, "S", "h", 2, members=["a"]) == static.get(js, "S", "h")
    with pytest.raises(GroupExistsError):
        static.create(js, "S", "h", 3)
    assert [each.name for each in static.list(js, "S")] == ["h"]
    assert static.active_members(js, "S", "h") == []
    assert static.is_active(js, "S", "h", "a") is False
    with pytest.raises(MemberNotActiveError):
        static.step_down(js, "S", "h", "a")
    static.delete(js, "S", "h")


def test_what_is_not_begun_says_how_it_is_begun_without_async(
    js: sync.JetStream, group: str
) -> None:
    membership = join(js, group)
    for call in (membership.wait, membership.wait_for_consuming, lambda: next(membership)):
        with pytest.raises(
            GroupConfigurationError, match=r"in headrace\.sync: with … as membership"
        ):
            call()
    with (
        membership,
        pytest.raises(GroupConfigurationError, match=r"in headrace\.sync: for message in"),
    ):
        membership.wait()


def test_a_handler_runs_on_a_thread_of_its_own(js: sync.JetStream, group: str) -> None:
    seen: list[tuple[str, int]] = []
    threads: set[str] = set()

    def handle(message: GroupMessage) -> None:
        assert isinstance(message, GroupMessage)
        threads.add(threading.current_thread().name)
        js.publish("s.4", b"a handler may make blocking calls") if not seen else None
        if message.subject != "s.4":
            seen.append((message.subject, int(message.payload)))
        message.ack_sync() if len(seen) % 2 else message.ack()

    with join(js, group, handle) as membership:
        until_here(lambda: len(seen) == 40)
        assert (membership.is_active, membership.partitions) == (True, (0, 1, 2, 3))
        assert (membership.stream, membership.group, membership.member) == ("S", "g", "m")
        assert membership.generation > 0
        assert elastic.active_members(js, "S", "g") == ["m"]
        elastic.delete(js, "S", group)
        membership.wait()
    assert threads == {"member m of g"}
    assert in_order(seen)


def test_several_keys_are_handled_at_once_and_each_in_order(js: sync.JetStream, group: str) -> None:
    seen: list[tuple[str, int]] = []
    running: set[str] = set()
    most: list[int] = []
    meeting = threading.Barrier(2)  # broken for good, once it was not met in time

    def handle(message: GroupMessage) -> None:
        assert message.subject not in running, "two for one key"
        running.add(message.subject)
        most.append(len(running))
        if not meeting.broken and len(most) <= 2:
            meeting.wait(10)
        seen.append((message.subject, int(message.payload)))
        running.discard(message.subject)
        message.ack()

    with join(js, group, handle, concurrency=3) as membership:
        until_here(lambda: len(seen) == 40)
        membership.leave()
        membership.wait()
    assert max(most) > 1
    assert in_order(seen)


def test_it_is_iterated(js: sync.JetStream, group: str) -> None:
    seen: list[tuple[str, int]] = []
    with join(js, group) as membership:
        for message in membership:
            assert isinstance(message, GroupMessage)
            seen.append((message.subject, int(message.payload)))
            message.ack()
            if len(seen) == 40:
                membership.leave()
    assert len(seen) == 40
    assert in_order(seen)
    until_here(lambda: js.stream("S-g").info().state.messages == 0)


def test_a_handler_that_leaves_does_not_wait_for_itself(js: sync.JetStream, group: str) -> None:
    seen: list[bytes] = []

    def handle(message: GroupMessage) -> None:
        with pytest.raises(ConfigurationError, match="cannot be waited for inside its own handler"):
            membership.wait()
        seen.append(message.payload)
        message.ack()
        membership.leave()

    with join(js, group, handle) as membership:
        membership.wait()
    assert len(seen) == 1


def test_a_handler_that_fails_ends_it_or_is_called_again(js: sync.JetStream, group: str) -> None:
    def fail(message: GroupMessage) -> None:
        raise StopIteration("no more")

    failed = pytest.raises(HandlerFailedError, match=r"StopIteration\('no more'\)")
    with failed, join(js, group, fail) as membership:
        membership.wait()
    seen: list[int] = []

    def fail_first(message: GroupMessage) -> None:
        seen.append(int(message.payload))
        if len(seen) == 1:
            raise ValueError("first")
        message.ack()

    reported: list[Exception] = []
    policy = {"on_failure": Retry(backoff=(0.01,)), "on_error": reported.append}
    with join(js, group, fail_first, **policy):
        until_here(lambda: len(seen) == 41)
    assert seen[0] == seen[1]
    assert any("first" in repr(error) for error in reported)


def test_a_failure_that_ends_it_is_logged_before_anybody_waits_for_it(
    js: sync.JetStream, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: GroupMessage) -> None:
        raise ValueError("oh")

    failed = pytest.raises(HandlerFailedError)
    with failed, join(js, group, fail):
        (line,) = until_here(
            lambda: [each for each in caplog.messages if "the membership ends" in each],
            "nothing was logged",
            within=30,
        )
        assert re.search(r"failed 1 time for message \d+ on 's\.\d' of member 'm'.*oh", line)
        assert re.search(r"key \('\d',\), delivery 1; the membership ends", line)


def test_what_is_told_is_told_on_the_background_thread(js: sync.JetStream, group: str) -> None:
    told: list[Any] = []
    active = threading.Event()

    def on_active(generation: int) -> None:
        told.append((generation, membership.partitions, threading.current_thread().name))
        active.set()

    more: dict[str, Any] = {"on_active": on_active, "on_standby": lambda: told.append("standby")}
    membership = join(js, group, lambda message: message.ack(), **more)
    with membership:
        assert active.wait(20)
        generation = membership.generation
    assert told == [(generation, (0, 1, 2, 3), "headrace"), "standby"]


def test_what_is_wrong_is_said_at_once(js: sync.JetStream) -> None:
    async def handle(message: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="handler must be a plain function"):
        join(js, "g", handle)
    with pytest.raises(ConfigurationError, match="concurrency is 0; accepted: 1 or more"):
        join(js, "g", print, concurrency=0)
    with pytest.raises(GroupNotFoundError), join(js, "g", print):
        pass


def test_a_connection_that_closes_ends_a_membership_and_its_threads(
    reference_server: peers.ServerProcess, js: sync.JetStream, group: str
) -> None:
    seen: list[bytes] = []

    def handle(message: GroupMessage) -> None:
        seen.append(message.payload)
        message.ack()

    other = sync.connect(reference_server.url)
    membership = join(other.jetstream(), group, handle)
    membership.__enter__()
    until_here(lambda: len(seen) == 40)
    other.close()
    with pytest.raises(ConnectionClosedError, match="connection is closed"):
        membership.wait()
    with pytest.raises(ConnectionClosedError, match="connection is closed"):
        membership.__exit__(None, None, None)


def test_it_is_imported_in_whatever_way() -> None:
    code = (
        "from headrace import sync\n"
        "assert sync.groups.static.create and sync.Broker\n"
        "from headrace.sync.groups import elastic as a\n"
        "import headrace.sync.groups as b\n"
        "assert sync.groups.elastic is a is b.elastic\n"
        "from headrace.groups import elastic as aio\nassert a.create is not aio.create\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


# Exactly once


class Notes:
    """A transaction that notes what is done to it."""

    def __init__(self, failing: str = "") -> None:
        self.done: list[str] = []
        self._failing = failing

    def _note(self, what: str) -> None:
        self.done.append(what)
        if what == self._failing:
            raise ValueError(what)

    def prepare(self) -> None:
        self._note("prepare")

    def commit(self) -> None:
        self._note("commit")

    def rollback(self) -> None:
        self._note("rollback")


def test_a_handler_takes_effect_exactly_once(js: sync.JetStream, group: str) -> None:
    done: list[list[str]] = []
    asked: list[bool] = []

    def handle(message: GroupMessage) -> None:
        sequence = message.metadata.stream_seq
        asked.append(was_acknowledged(js, "S-g", sequence))
        with exactly_once(message, Notes(), recoverable=True) as notes:
            done.append(notes.done)
        asked.append(was_acknowledged(js, "S-g", sequence))

    with join(js, group, handle):
        until_here(lambda: len(asked) == 80)
    assert done == [["prepare", "commit"]] * 40
    assert asked == [False, True] * 40


class Answered:
    """A message whose acknowledgement ends as told, one time after the other."""

    def __init__(self, *ends: Exception) -> None:
        self._ends = [*ends]

    def ack_sync(self, timeout: float | None = None) -> None:
        if self._ends:
            raise self._ends.pop(0)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((), ["prepare", "commit"]),
        ((NotOwnedError("gone"),), ["prepare", "rollback"]),
        ((NotOwnedError("gone", in_doubt=True),), ["prepare"]),
        ((RequestTimeoutError("late"),), ["prepare"]),
        ((ConnectionClosedError("over"),), ["prepare"]),
    ],
)
def test_what_follows_from_the_answer(ends: tuple[Exception, ...], expected: list[str]) -> None:
    message: Any = Answered(*ends)
    notes = Notes()
    with (
        pytest.raises(type(ends[0])) if ends else nullcontext(),
        exactly_once(message, notes, recoverable=True),
    ):
        pass
    assert notes.done == expected


def test_what_would_be_lost_with_the_process_is_refused() -> None:
    message: Any = Answered()
    notes = Notes()
    with (
        pytest.raises(GroupConfigurationError, match=r"give recoverable=True"),
        exactly_once(message, notes),
    ):
        notes.done.append("body")
    assert notes.done == []


def test_what_fails_before_the_acknowledgement_is_rolled_back() -> None:
    message: Any = Answered()
    notes = Notes()
    with pytest.raises(KeyError), exactly_once(message, notes, recoverable=True):
        raise KeyError
    assert notes.done == ["rollback"]
    notes = Notes("prepare")
    with pytest.raises(ValueError, match="prepare"), exactly_once(message, notes, recoverable=True):
        pass
    assert notes.done == ["prepare", "rollback"]

    class Waiting(Notes):
        async def prepare(self) -> None: ...  # type: ignore[override]

    notes = Waiting()
    refused = pytest.raises(ConfigurationError, match="give a plain function")
    with refused, exactly_once(message, notes, recoverable=True):
        pass
    assert notes.done == ["rollback"]


# The threads


def test_what_it_owns_is_read_while_it_changes() -> None:
    class Owned(NamedTuple):
        number: int
        partitions: tuple[int, ...]
        is_owned: bool = True

    interval = sys.getswitchinterval()
    js: Any = SimpleNamespace(connection=SimpleNamespace(_session=None))
    inner: Any = groups.Membership(js, groups.ElasticGroup, "S", "g", "m", print)
    thread: Any = None
    membership = Membership(thread, inner)
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            for number in range(1, 9):
                inner._generations[Owned(number, (number,))] = None
            inner._generations.clear()

    changing = threading.Thread(target=change)
    try:
        sys.setswitchinterval(1e-6)
        changing.start()
        for _ in range(3000):
            assert 0 <= membership.generation < 9
            assert set(membership.partitions) <= set(range(1, 9))
            assert membership.is_active in (True, False)
    finally:
        sys.setswitchinterval(interval)
        over.set()
        changing.join()


def test_a_thread_waits_until_it_reads(js: sync.JetStream, group: str) -> None:
    with join(js, group, lambda message: message.ack()) as membership:
        membership.wait_for_consuming()
        assert membership.is_consuming
    assert not membership.is_consuming
