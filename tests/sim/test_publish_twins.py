"""Publishes leave and say what they do one by one with every check, however they come.

Random worlds: several streams, limits, ids, expectations, batches, any cutting of the input; in memory and on
files, which are read again at the end. A few seconds in the suite, more with ``HYPOTHESIS_PROFILE=soak``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.publish.fast_batches import FastBatches
from headrace.broker.core.jetstream.stream.publishes import Publishes, Staging
from headrace.broker.core.net.session import Session
from headrace.wire.frames import PUB, Frame
from jetstream_world import HeldStorage
from sim.twins import IDS, IN_PROCESS, LIBRARY, PLAIN, Entries, Play, Twin, entries
from sim.whole.coverage import Path, entered, took_all, took_some

SECOND = 1_000_000_000


def of_one_subject(args: tuple[Any, ...], staged: Any) -> bool:
    """Whether ``stage_many`` found one subject."""
    return len(set(args[1])) == 1


def of_many_subjects(args: tuple[Any, ...], staged: Any) -> bool:
    """Whether it found several."""
    return len(set(args[1])) > 1


def right_by(name: bytes, *, alone: bool = False) -> Callable[[tuple[Any, ...], Any], bool]:
    """Whether ``_right`` found this header right at a glance, in a message of its own or with others."""

    def is_so(args: tuple[Any, ...], found: Any) -> bool:
        blocks = args[2]
        return found[0] > 0 and name in blocks[0] and (len(blocks) == 1 or not alone)

    return is_so


PATHS = {
    "relaxed": Path(Session, "_publish_relaxed"),
    "checked": Path(Session, "_publish_checked"),
    "together": Path(Publishes, "ingest_many", took_some),
    "of one subject": Path(Staging, "stage_many", of_one_subject),
    "of many subjects": Path(Staging, "stage_many", of_many_subjects),
    "named": Path(Publishes, "_right", right_by(b"Nats-Msg-Id: ", alone=True)),
    "admitted": Path(Publishes, "publish", entered),
    "expecting": Path(Publishes, "_right", right_by(b"Nats-Expected-Last-Subject-Sequence: ")),
    "placed": Path(Publishes, "_right", right_by(b"Nats-Expected-Last-Sequence: ")),
    "run": Path(Publishes, "ingest_run", took_all),
    "fast batch": Path(FastBatches, "ingest_many", took_some),
}
FAST_WAYS = (
    "relaxed",
    "together",
    "of one subject",
    "of many subjects",
    "named",
    "expecting",
    "placed",
    "fast batch",
)


class Say(NamedTuple):
    """One message: expectations are relative to what would be right."""

    subject: bytes
    answered: bool = True
    id: int = -1
    last: int | None = None
    subject_last: int | None = None
    other: bytes = b""
    """A raw header line or several."""
    reply: bytes = b""
    """Instead of one of its own."""
    size: int = 1


class Group(NamedTuple):
    """Messages of one tick, and where the bytes of all of them are cut, in thousandths."""

    messages: list[Say]
    cuts: Sequence[int] = ()


Step = Group | float | str

SUBJECTS = st.sampled_from([b"s.a", b"s.b", b"s.c", b"t.a", b"t.b", b"u.a"])
STRAYS = st.sampled_from([b"plain", b"nobody", b"s..a", b"heard.a"])
OTHERS = st.sampled_from(
    [
        b"A: b",
        b"Nats-Expected-Stream: S",
        b"Nats-Expected-Last-Msg-Id: id.1",
        b"Nats-TTL: 1s",
        b"Nats-TTL: never",
        b"Nats-Rollup: sub",
        b"Nats-Rollup: all",
        b"Nats-Incr: +2",
        b"Nats-Msg-Id: id.3",
        b"Nats-Msg-Id:id.4",
        b"nats-msg-id: id.5",
        b"A: b\r\nNats-Msg-Id: id.6",
        b"Nats-Request-Info: x",
    ]
)
sizes = st.sampled_from([0, 1, 1, 1, 60, 300])
ids = st.integers(0, IDS - 1)
deltas = st.none() | st.sampled_from([0, 0, 0, -1, 1])
anything = st.builds(
    Say,
    SUBJECTS | STRAYS,
    st.booleans(),
    st.just(-1) | ids,
    deltas,
    deltas,
    st.just(b"") | OTHERS,
    st.sampled_from([b"", b"", b"", b"$JS.ACK.S.c.1.1.1.1.0", b"$x", b"_R.f.10.ok.1.0.$FI"]),
    sizes,
)
cuts = st.lists(st.integers(0, 1000), max_size=3)
Messages = st.SearchStrategy[list[Say]]


def saying(subject: st.SearchStrategy[bytes], **kinds: st.SearchStrategy[Any]) -> Messages:
    """Many messages of one kind: what clients send in a hurry."""
    one = st.fixed_dictionaries({"subject": subject, **kinds}).map(lambda drawn: Say(**drawn))
    return st.lists(one, min_size=8, max_size=20)


def alike(**kinds: st.SearchStrategy[Any]) -> Messages:
    """The same, all of one subject."""
    return SUBJECTS.flatmap(lambda subject: saying(st.just(subject), **kinds))


new_ids = st.integers(0, IDS - 12).map(
    lambda first: [Say(b"s.a", id=first + at) for at in range(12)]
)
in_stream = saying(st.sampled_from([b"s.a", b"s.b", b"s.c"]), size=sizes)
fast_batch = st.tuples(st.integers(0, 99), st.integers(2, 20)).map(
    lambda drawn: [
        Say(b"s.a", reply=b"_R.f%d.3.ok.%d.%d.$FI" % (drawn[0], at, at > 1))
        for at in range(1, drawn[1])
    ]
)
messages = st.one_of(
    alike(size=sizes),
    alike(id=ids),
    alike(answered=st.booleans()),
    alike(other=st.just(b"A: b")),
    saying(
        SUBJECTS,
        subject_last=st.sampled_from([0, 0, 0, 0, -1]),
        other=st.sampled_from([b"", b"A: b"]),
    ),
    saying(
        st.sampled_from([b"s.a", b"s.b"]),
        last=st.sampled_from([0, 0, 0, 0, 0, 0, 0, -1, 1]),
        other=st.sampled_from([b"", b"A: b"]),
        size=sizes,
    ),
    new_ids,
    in_stream,
    fast_batch,
    st.lists(anything, min_size=1, max_size=12),
    st.tuples(in_stream, st.lists(anything, min_size=1, max_size=2)).map(
        lambda two: [*two[0], *two[1]]
    ),
)
groups = st.builds(Group, messages, cuts)
admin = st.sampled_from(["purge", "delete", "tighten", "hold", "release"])
steps = st.lists(
    st.one_of(groups, groups, groups, st.sampled_from([0.5, 2.0]), admin), min_size=3, max_size=8
)

LIMITS: list[tuple[str, Any]] = [
    ("max_msgs", 3),
    ("max_msgs", 20),
    ("max_bytes", 300),
    ("max_bytes", 2000),
    ("max_msgs_per_subject", 1),
    ("max_msgs_per_subject", 2),
    ("max_msgs_per_subject", 5),
    ("discard", "new"),
    ("discard", "new"),
    ("duplicate_window", SECOND // 10),
    ("duplicate_window", 10 * SECOND),
]
RULES: list[tuple[str, Any]] = [
    ("max_msg_size", 100),
    ("max_msg_size", 200),
    ("allow_msg_ttl", True),
    ("allow_msg_counter", True),
    ("allow_rollup_hdrs", True),
    ("no_ack", True),
    ("retention", "interest"),
    ("republish", {"src": "*.a", "dest": "heard.{{wildcard(1)}}"}),
    ("subject_transform", {"src": "t.a", "dest": "t.z"}),
]
config = st.tuples(
    st.lists(st.sampled_from(LIMITS), max_size=2), st.lists(st.sampled_from(RULES), max_size=1)
).map(lambda two: dict(two[0] + two[1]))
configs = st.tuples(config, config, config)
usual: tuple[dict[str, Any], ...] = ({}, {"max_msgs_per_subject": 2}, {"discard": "new"})
every_way: list[Step] = [
    Group([Say(b"s.a")] * 9),
    Group([Say(b"s.a", id=at) for at in range(9)], [500]),
    Group([Say(b"s.a"), Say(b"s.b", id=10)] * 5),
    Group([Say(b"s.a"), Say(b"s.b")] * 5),
    Group([Say(b"s.a", id=12)]),
    Group([Say(b"s.%d" % at, subject_last=0, size=60) for at in range(9)], [500]),
    Group([Say(b"s.%d" % (at % 7), subject_last=-(at == 8)) for at in range(12)]),
    Group([Say(b"s.1", subject_last=0)]),
    Group([Say(b"s.%d" % (at % 3), last=0) for at in range(10)], [500]),
    Group([Say(b"s.a", last=-(at == 8)) for at in range(12)]),
    Group([Say(b"s.1", last=0), Say(b"s.1", last=1)]),
    Group([Say(b"s.a", reply=b"_R.f.3.ok.1.0.$FI")]),
    Group([Say(b"s.a", reply=b"_R.f.3.ok.%d.1.$FI" % at) for at in range(2, 9)]),
    Group([Say(b"s.a", id=at, size=300) for at in range(8)], [500]),
    2.0,
    Group([Say(b"s.c", id=at, size=at * 40) for at in range(12)], [500]),
    Group([Say(b"s.%d" % (at % 3), size=at * 40) for at in range(12)]),
    Group([Say(b"u.a", last=0), Say(b"u.a", last=1), Say(b"u.b", subject_last=0)]),
]


BUCKET = {
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "allow_msg_ttl": True,
}


class Author:
    """Writes messages out: the same for all, by what the plain broker has."""

    def __init__(self, plain: Twin) -> None:
        self._plain = plain
        self._number = 0

    def write(self, group: Group) -> list[Frame]:
        before: dict[str, int] = {}
        frames: list[Frame] = []
        for say in group.messages:
            name = say.subject[:1].decode().upper()
            stream = self._plain.streams.get(name)
            last = stream.store.last_seq + before.get(name, 0) if stream is not None else 0
            before[name] = before.get(name, 0) + 1
            on_subject = stream.publishes.checks.last_on(say.subject) if stream is not None else 0
            frames.append(self._frame(say, last, on_subject))
        return frames

    def _frame(self, say: Say, last: int, on_subject: int) -> Frame:
        lines = [say.other] if say.other else []
        if say.id >= 0:
            lines.append(b"Nats-Msg-Id: id.%d" % say.id)
        if say.last is not None:
            lines.append(b"Nats-Expected-Last-Sequence: %d" % max(0, last + say.last))
        if say.subject_last is not None:
            expected = max(0, on_subject + say.subject_last)
            lines.append(b"Nats-Expected-Last-Subject-Sequence: %d" % expected)
        block = b"NATS/1.0\r\n%b\r\n\r\n" % b"\r\n".join(lines) if lines else b""
        self._number += 1
        reply = say.reply or (b"_R.p.%d" % self._number if say.answered else b"")
        return (PUB, say.subject, reply, block, b"%d" % (self._number % 10) * say.size)


def configure(twin: Twin, configs: tuple[dict[str, Any], ...]) -> None:
    for name, config in zip("STU", configs, strict=True):
        document = {"name": name, "subjects": [f"{name.lower()}.>"], "allow_batched": True}
        twin.api(f"STREAM.CREATE.{name}", {**document, "storage": twin.kind, **config})
    for number, pattern in enumerate((b"_R.>", b"plain", b"heard.>")):
        twin.tell(b"SUB %b %d\r\n" % (pattern, number))


def manage(twin: Twin, deed: str) -> None:
    """What an operator does meanwhile, or the disk."""
    storage = twin.world.storage
    if deed == "purge":
        twin.api("STREAM.PURGE.S", {"keep": 2})
    elif deed == "delete":
        twin.api("STREAM.MSG.DELETE.S", {"seq": 2})
    elif deed == "tighten":
        document = {"name": "S", "subjects": ["s.>"], "max_msgs": 4, "allow_batched": True}
        twin.api("STREAM.UPDATE.S", {**document, "storage": twin.kind})
    elif isinstance(storage, HeldStorage):
        storage.hold = deed == "hold"
        while storage.held and not storage.hold:
            storage.release()
        twin.tick()


def play(kind: str, found: Entries, configs: tuple[dict[str, Any], ...], steps: list[Step]) -> None:
    both = Play(kind, found)
    author = Author(both.plain)
    both.each(partial(configure, configs=configs))
    for step in steps:
        do: Callable[[Twin], None]
        if isinstance(step, Group):
            frames = author.write(step)
            do = partial(Twin.say, frames=frames, cuts=step.cuts)
        elif isinstance(step, str):
            do = partial(manage, deed=step)
        else:
            do = partial(Twin.advance, seconds=step)
        both.each(do)
        assert len({twin.session.in_messages for twin in both.twins}) == 1
    both.each(partial(manage, deed="release"))
    for name in "STU":
        both.each(partial(Twin.api, verb=f"STREAM.INFO.{name}", document={"subjects_filter": ">"}))
    both.compare()
    if kind == "file":
        both.each(Twin.restart)
        both.compare()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_every_option_means_the_same_in_every_manner(kind: str) -> None:
    with entries(PATHS) as found:
        for name, value in LIMITS + RULES:
            play(kind, found, ({name: value}, {}, {}), every_way)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_publishes_leave_and_say_the_same_in_every_manner(kind: str) -> None:
    with entries(PATHS) as found:

        @example(usual, every_way)
        @given(configs, steps)
        def worlds(configs: tuple[dict[str, Any], ...], steps: list[Step]) -> None:
            play(kind, found, configs, steps)

        worlds()
    wanted = [(manner, way) for manner in (LIBRARY, IN_PROCESS) for way in FAST_WAYS]
    assert not found.missed(*wanted, (IN_PROCESS, "run"), (PLAIN, "admitted"), (PLAIN, "checked"))
    # What they are compared with must not go their ways.
    assert len(found.missed(*((PLAIN, way) for way in FAST_WAYS))) == len(FAST_WAYS)


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("history", [1, 3])
def test_a_bucket_takes_the_ways_of_a_plain_stream(kind: str, history: int) -> None:
    bucket = {**BUCKET, "max_msgs_per_subject": history}
    with entries(PATHS) as found:
        play(kind, found, (bucket, bucket, {}), every_way)
    ways = ("together", "of many subjects", "named")
    assert not found.missed(*((manner, way) for manner in (LIBRARY, IN_PROCESS) for way in ways))
    assert found.counts["plain", "admitted"]


@pytest.mark.parametrize("limit", ["max_msgs", "max_bytes"])
def test_a_bucket_with_a_size_is_looked_at_message_by_message(limit: str) -> None:
    with entries(PATHS) as found:
        play("memory", found, ({**BUCKET, limit: 5},) * 3, every_way)
    assert not found.counts["library", "together"]
