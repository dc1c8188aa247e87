"""Deliveries and acknowledgements go in batches and come to the same as one message at a time.

Random worlds: pull and push consumers of every kind, requests, acknowledgements and publishes in any mixture,
any cutting of the input; in memory and on files, which are read again at the end. A few seconds in the suite,
more with ``HYPOTHESIS_PROFILE=soak``.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.consumer import delivery_pass, push
from headrace.broker.core.jetstream.consumer.acks import AckDispatch, Acks
from headrace.broker.core.jetstream.consumer.backlog import LastPerSubject
from headrace.broker.core.jetstream.consumer.delivery_pass import Sender
from headrace.broker.core.jetstream.consumer.priority_policies import Overflow
from headrace.broker.core.jetstream.consumer.pull_path import PullPath
from headrace.broker.core.jetstream.consumer.pull_recipients import PullRecipients
from headrace.broker.core.jetstream.consumer.push import PushRecipients
from headrace.broker.core.net import publishing
from headrace.broker.core.net.inprocess import _FrameSubscription
from headrace.broker.core.net.session import Session
from headrace.broker.core.net.subscription import Subscription
from headrace.wire.frames import MSG, PUB, Frame
from sim.twins import IN_PROCESS, LIBRARY, PLAIN, Entries, Play, Twin, entries
from sim.whole.coverage import Path, entered, took_all

SECOND = 1_000_000_000
PIN = b"Nats-Pin-Id: "
FLOW = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


def _as_stored(args: tuple[Any, ...], result: Any) -> bool:
    """Of these rows frames are made by one template."""
    rows = args[1].rows
    return len(rows) > 1 and not any(row[2] for row in rows) and args[0].messages_max < 0


def _as_stored_with_headers(args: tuple[Any, ...], result: Any) -> bool:
    """Of these rows frames are made by a template, and of those that have headers by another."""
    rows = args[1].rows
    return len(rows) > 1 and any(row[2] for row in rows) and args[0].messages_max < 0


def _as_listed(args: tuple[Any, ...], result: Any) -> bool:
    """Of these rows only the subjects and numbers differ, as of the keys of a bucket."""
    rows = args[1].rows
    alike = len(rows) > 1 and len({row[2] for row in rows}) == 1 and bool(rows[0][2])
    return alike and not any(row[3] for row in rows) and args[0].messages_max < 0


def _took_a_run(args: tuple[Any, ...], result: Any) -> bool:
    """Acknowledgements behind something else were taken together."""
    _, hand_over, frames = args
    return hand_over is publishing.hand_over_acks and not result and bool(frames)


def _whole(args: tuple[Any, ...], result: Any) -> bool:
    """Several messages went to one request as they are."""
    _, request, _, rows = args
    return len(rows) > 1 and not request.bounded


def _served_some(args: tuple[Any, ...], result: Any) -> bool:
    return bool(result > args[2])


def _pushed(args: tuple[Any, ...], result: Any) -> bool:
    return args[0]._consumer.push is not None


def _took_both(args: tuple[Any, ...], result: Any) -> bool:
    """Acknowledgements and the request behind them."""
    return bool(result and args[1] and args[2])


def _took_acks(args: tuple[Any, ...], result: Any) -> bool:
    return bool(result and not args[2])


def _took_request(args: tuple[Any, ...], result: Any) -> bool:
    return bool(result and not args[1])


def _met_thresholds(args: tuple[Any, ...], result: Any) -> bool:
    """Requests with thresholds were served in turn."""
    return isinstance(args[0]._policy, Overflow) and bool(result > args[2])


def _several(args: tuple[Any, ...], result: Any) -> bool:
    return len(result) > 1


PATHS = {
    "to one request": Path(PullRecipients, "_send", _whole),
    "to requests in turn": Path(PullRecipients, "_send_in_turn", _served_some),
    "frames of rows": Path(Subscription, "send_stored", _as_stored),
    "frames of rows with headers": Path(Subscription, "send_stored", _as_stored_with_headers),
    "frames of keys": Path(Subscription, "send_stored", _as_listed),
    "acks between pulls": Path(Session, "_hand_over", _took_a_run),
    "rows handed over": Path(_FrameSubscription, "_put", entered),
    "pushed as stored": Path(Sender, "send_stored", _pushed),
    "pushed in pieces": Path(PushRecipients, "_send_by_window", entered),
    "acks found together": Path(AckDispatch, "many", took_all),
    "acks taken together": Path(Acks, "receive_many", entered),
    "each to a receiver of its own": Path(Sender, "send_each", entered),
    "thresholds in turn": Path(PullRecipients, "_send_in_turn", _met_thresholds),
    "acks and a request as written": Path(PullPath, "take", _took_both),
    "acks as written": Path(PullPath, "take", _took_acks),
    "a request as written": Path(PullPath, "take", _took_request),
    "lasts read together": Path(LastPerSubject, "read_together", _several),
}
FAST_WAYS = (
    "to one request",
    "to requests in turn",
    "pushed as stored",
    "pushed in pieces",
    "acks found together",
    "acks taken together",
    "each to a receiver of its own",
    "lasts read together",
)
AS_WRITTEN = ("acks and a request as written", "acks as written", "a request as written")
"""Of a client at a socket."""


class Put(NamedTuple):
    """Publish ``number`` messages, to subjects in turn."""

    number: int
    subjects: int = 1
    size: int = 1
    headed: bool = False


class Pull(NamedTuple):
    """Ask the pull consumer ``name``."""

    body: dict[str, Any]
    name: str = "C"
    apart: bool = False
    """Answered to another subscription than others."""


class Ack(NamedTuple):
    """Answer some of what was delivered: every ``every``-th from the ``first`` on, in either order."""

    body: bytes = b""
    first: int = 0
    every: int = 1
    most: int = 99
    confirmed: bool = False
    backwards: bool = False
    name: str = ""
    """Of one consumer only."""


class Line(NamedTuple):
    """Something said as it is."""

    text: bytes


Act = Put | Pull | Ack
Step = tuple[list[Act], list[int]] | Line | float | str

puts = st.builds(
    Put, st.integers(1, 30), st.integers(1, 3), st.sampled_from([0, 1, 200, 5000]), st.booleans()
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "batch": st.sampled_from([1, 3, 10, 40]),
        "max_bytes": st.sampled_from([60, 700, 20_000]),
        "no_wait": st.just(True),
        "expires": st.sampled_from([SECOND, 5 * SECOND]),
    },
)
beating = st.fixed_dictionaries(
    {"expires": st.just(5 * SECOND), "idle_heartbeat": st.just(SECOND // 2)},
    optional={"batch": st.sampled_from([3, 40]), "no_wait": st.just(True)},
)
grouped = st.fixed_dictionaries(
    {"group": st.just("g"), "batch": st.sampled_from([2, 20])},
    optional={
        "min_pending": st.sampled_from([1, 10]),
        "min_ack_pending": st.just(3),
        "priority": st.integers(0, 2),
        "id": st.sampled_from(["the pin", "the pin", "of nobody"]),
    },
)
pulls = st.builds(
    Pull, bodies | bodies | beating | grouped, st.sampled_from(["C", "C", "D"]), st.booleans()
)
acks = st.builds(
    Ack,
    st.sampled_from([b"", b"", b"+ACK", b"+OK", b"-NAK", b"-NAK 500000000", b"+WPI", b"+TERM why"]),
    st.integers(0, 5),
    st.integers(1, 3),
    st.sampled_from([1, 2, 9, 99]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "C", "C", "P"]),
)
plain_acks = st.builds(
    lambda first, every, name: Ack(b"+ACK", first, every, name=name),
    st.integers(0, 5),
    st.integers(1, 2),
    st.sampled_from(["C", "C", "D", "P"]),
)
acts = st.lists(st.one_of(puts, pulls, pulls, acks, plain_acks), min_size=1, max_size=5)
lines = st.sampled_from(
    [
        b"SUB d.p 50\r\n",
        b"SUB d.p q 51\r\n",
        b"SUB d.p q 52\r\n",
        b"SUB d.p 53\r\nUNSUB 53 4\r\n",
        b"UNSUB 50\r\n",
        b"UNSUB 51\r\n",
        b"SUB $JS.ACK.S.C.> 54\r\n",
        b"UNSUB 54\r\n",
        b"SUB _R.q.> 55\r\nUNSUB 55 3\r\n",
    ]
).map(Line)
"""None ends an inbox of pulls after a count: a second request of it is served whole if it is looked at before
the end, as by the public server, and not at all behind it."""
deeds = st.sampled_from(["flow", "flow", "purge", "delete", "widen", "pause", "unpin", "keys"])
times = st.sampled_from([0.1, 0.6, 1.1, 5.0])
chunk = st.tuples(acts, st.lists(st.integers(0, 1000), max_size=3))
steps = st.lists(
    st.one_of(chunk, chunk, chunk, chunk, lines, deeds, times), min_size=3, max_size=10
)

SHARED: list[tuple[str, Any]] = [
    ("ack_policy", "all"),
    ("ack_policy", "none"),
    ("max_ack_pending", 4),
    ("max_ack_pending", 15),
    ("max_deliver", 2),
    ("backoff", [SECOND // 2, 2 * SECOND]),
    ("filter_subject", "s.0"),
    ("filter_subjects", ["s.0", "s.2"]),
    ("deliver_policy", "last_per_subject"),
    ("deliver_policy", "new"),
    ("headers_only", True),
    ("sample_freq", "50"),
    ("replay_policy", "original"),
]
OF_PULL: list[tuple[str, Any]] = [
    ("max_batch", 5),
    ("max_waiting", 2),
    ("max_bytes", 1000),
    ("overflow", True),
    ("prioritized", True),
    ("pinned_client", True),
    ("pinned_client", True),
]
OF_PUSH: list[tuple[str, Any]] = [
    ("flow_control", True),
    ("flow_control", True),
    ("deliver_group", "q"),
    ("rate_limit_bps", 80_000),
    ("idle_heartbeat", SECOND),
]
OF_STREAM: list[tuple[str, Any]] = [
    ("retention", "interest"),
    ("retention", "workqueue"),
    ("max_msgs", 12),
    ("max_msgs_per_subject", 2),
    ("discard", "new"),
]


def options(*lists: list[tuple[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(st.sampled_from([option for some in lists for option in some]), max_size=2).map(
        dict
    )


worlds = st.tuples(options(OF_STREAM), options(SHARED, OF_PULL), options(SHARED, OF_PUSH))
BEATS = {"expires": 5 * SECOND, "idle_heartbeat": SECOND // 2}
every_way: list[Step] = [
    ([Put(30, 3), Put(3, 3, 5000), Put(5, 2, headed=True)], []),
    ([Pull({"batch": 10})], []),
    ([Ack(b"+ACK", every=2, name="C")], [300]),
    1.1,
    ([Pull({"batch": 4}), Pull({"batch": 6}), Pull({"batch": 5, "max_bytes": 200})], []),
    ([Pull({"batch": 4}), Pull({"batch": 3}, apart=True), Pull({"batch": 2}, "D", True)], []),
    ([Ack(b"+ACK", first=3), Put(3)], []),
    ([Pull({"batch": 40}, "D"), Ack(b"-NAK", most=2), Pull({"batch": 30}), Ack(name="C")], [700]),
    ([Ack(b"-NAK", name="D", most=3)], []),
    ([Ack(b"+ACK", name="C")], []),
    Line(b"SUB d.p 50\r\n"),
    ([Ack(b"+ACK", name="P")], []),
    "flow",
    ([Put(30, 2, 5000)], []),
    "flow",
    0.6,
    ([Put(20, 2, 5000)], []),
    "flow",
    ([Ack(b"+ACK", name=name) for name in "CDP"], []),
    ([Pull({"no_wait": True, "batch": 40}), Pull({"no_wait": True, "batch": 99})], []),
    ([Ack(b"+ACK", name="C")], []),
    0.3,
    ([Ack(b"+ACK", name="C")], []),  # all of them once more
    ([Pull({"batch": 9, **BEATS}), Pull({"batch": 9, "no_wait": True, **BEATS})], []),
    0.3,
    ([Put(4)], []),
    0.4,
    5.0,
    ([Ack(b"+ACK", backwards=True)], []),
]

IN_GROUP: dict[str, Any] = {"group": "g", "expires": 60 * SECOND}
WITH_PIN = {**IN_GROUP, "id": "the pin"}
with_pins: list[Step] = [
    ([Pull({**IN_GROUP, "batch": 40}), Pull({**IN_GROUP, "batch": 9}), Put(12, 2)], []),
    ([Pull({**WITH_PIN, "batch": 20}), Pull({**WITH_PIN, "max_bytes": 700, "batch": 20})], []),
    ([Put(30, 3), Put(3, 2, headed=True), Pull(IN_GROUP), Pull({"batch": 3})], []),
    ([Ack(b"+ACK", every=2), Ack(b"-NAK", most=2)], []),
    "unpin",
    ([Put(3), Ack(b"+ACK")], []),
    ([Put(9), Pull({**WITH_PIN, "batch": 40})], [500]),
    ([Put(30, 2, headed=True), Put(2)], []),
    ([Pull({**WITH_PIN, "batch": 40}), Ack(b"+ACK"), Pull(WITH_PIN), Pull({"batch": 1})], []),
    ([Put(20, 2), Pull({**WITH_PIN, "batch": 40})], []),
    ([Pull(WITH_PIN), Ack(b"+ACK", first=2, every=2), Pull(WITH_PIN), Ack(b"-NAK")], []),
    "unpin",
    5.0,
    ([Put(40, 2)], []),
]

CHOOSY: dict[str, Any] = {**IN_GROUP, "min_pending": 4}
with_thresholds: list[Step] = [
    ([Pull({**CHOOSY, "batch": 3}), Pull({**CHOOSY, "batch": 9, "min_pending": 10})], []),
    ([Pull({**CHOOSY, "batch": 6}, apart=True)], []),
    ([Put(3), Put(3, 1, 5000)], []),
    ([Put(20, 3)], []),
    ([Pull({**IN_GROUP, "batch": 2}), Pull({**CHOOSY, "batch": 5}), Ack(most=2)], []),
    ([Pull({**IN_GROUP, "min_ack_pending": 12, "batch": 20}), Pull({**CHOOSY, "batch": 8})], []),
    ([Put(20, 2, headed=True)], []),
    ([Ack(b"+ACK")], []),
    ([Ack(b"-NAK", most=3), Pull({**CHOOSY, "batch": 2}), Put(9)], [500]),
    ([Put(40, 2), Pull({**CHOOSY, "max_bytes": 300}), Pull({**CHOOSY, "batch": 30})], []),
    ([Ack(most=1), Pull({**CHOOSY, "no_wait": True})], []),
    ([Ack(), Pull({**CHOOSY, "batch": 40})], []),
]

of_keys: list[Step] = [
    Line(b"SUB d.p 50\r\n"),
    ([Put(50, 25), Put(3, 3, 5000), Put(5, 2, headed=True)], []),
    "keys",
    ([Put(3, 3)], []),
    "delete",
    0.3,
    "keys",
    "purge",
    ([Put(2, 2, headed=True)], []),
    ([Pull({"batch": 3})], []),
    ([Ack(b"+ACK", most=1, name="C"), Pull({"batch": 1})], []),
]


class Desk:
    """Writes out what is to be said, by what the plain client has heard."""

    def __init__(self) -> None:
        self.delivered: dict[bytes, None] = {}
        """Where acknowledgements go, the newest last."""
        self.flow: list[bytes] = []
        """Requests of flow control that have no answer yet."""
        self._number = 0
        self._pin = ""

    def hear(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame[0] != MSG:
                continue
            _, _, _, reply, headers, _ = frame
            if reply.startswith(b"$JS.ACK."):
                self.delivered.pop(reply, None)
                self.delivered[reply] = None
                if PIN in headers:
                    self._pin = headers.partition(PIN)[2].partition(b"\r\n")[0].decode()
            elif headers == FLOW:
                self.flow.append(reply)

    def write(self, acts: list[Act]) -> list[Frame]:
        frames: list[Frame] = []
        for act in acts:
            if isinstance(act, Put):
                frames += [self._put(act, number) for number in range(act.number)]
            elif isinstance(act, Pull):
                subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{act.name}".encode()
                asked = dict(act.body)
                if asked.get("id") == "the pin":
                    asked["id"] = self._pin
                body = json.dumps(asked).encode() if asked else b""
                inbox = self._inbox(b"q", b"_S" if act.apart else b"_R")
                frames.append((PUB, subject, inbox, b"", body))
            else:
                frames += self._acks(act)
        return frames

    def _put(self, act: Put, number: int) -> Frame:
        headers = b"NATS/1.0\r\nA: b\r\n\r\n" if act.headed else b""
        return (PUB, b"s.%d" % (number % act.subjects), b"", headers, b"x" * act.size)

    def _acks(self, act: Ack) -> list[Frame]:
        prefix = f"$JS.ACK.S.{act.name}".encode()
        known = [subject for subject in self.delivered if subject.startswith(prefix)]
        if act.backwards:
            known.reverse()
        some = known[act.first :: act.every][: act.most]
        return [
            (PUB, subject, self._inbox(b"a") if act.confirmed else b"", b"", act.body)
            for subject in some
        ]

    def _inbox(self, kind: bytes, root: bytes = b"_R") -> bytes:
        self._number += 1
        return b"%b.%b.%d" % (root, kind, self._number)


def configure(twin: Twin, world: tuple[dict[str, Any], ...]) -> None:
    twin.tell(b"SUB _R.> 1\r\n")
    twin.tell(b"SUB _S.> 9\r\n")
    twin.tell(b"SUB $JS.EVENT.> 2\r\n")
    of_stream, of_pull, of_push = world
    document = {"name": "S", "subjects": ["s.>"], "storage": twin.kind, **of_stream}
    twin.api("STREAM.CREATE.S", document)
    of_pull = dict(of_pull)
    for policy in ("overflow", "prioritized", "pinned_client"):
        if of_pull.pop(policy, False):
            of_pull |= {"priority_policy": policy, "priority_groups": ["g"]}
    if of_push.get("flow_control"):
        of_push = {"idle_heartbeat": 5 * SECOND, **of_push}
    shared = {"ack_policy": "explicit", "ack_wait": SECOND}
    for name, config in (("C", of_pull), ("D", {}), ("P", {"deliver_subject": "d.p", **of_push})):
        config = {"durable_name": name, **shared, **config}
        if "backoff" in config:
            config.setdefault("max_deliver", 3)
        twin.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})


def manage(twin: Twin, deed: str) -> None:
    if deed == "purge":
        twin.api("STREAM.PURGE.S", {"keep": 3})
    elif deed == "delete":
        twin.api("STREAM.MSG.DELETE.S", {"seq": 3})
    elif deed == "unpin":
        twin.api("CONSUMER.UNPIN.S.C", {"group": "g"})
    elif deed == "keys":
        keys = {"deliver_policy": "last_per_subject", "filter_subject": "s.>", "headers_only": True}
        config = {"durable_name": "K", "deliver_subject": "d.p", "ack_policy": "none", **keys}
        twin.api("CONSUMER.DELETE.S.K")
        twin.api("CONSUMER.CREATE.S.K", {"stream_name": "S", "config": config})
    else:
        consumer = next((one for one in twin.consumers if one.name == "C"), None)
        if consumer is None:
            return
        config = {"durable_name": "C", "ack_policy": consumer.config.ack_policy}
        more: dict[str, Any] = {"max_ack_pending": 30, "ack_wait": SECOND}
        if deed == "pause":
            more = {"pause_until": "2099-01-01T00:00:00Z"}
        twin.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config | more})


def take(both: Play, desk: Desk, step: Step) -> None:
    if isinstance(step, Line):
        heard = both.each(partial(Twin.tell, line=step.text))
    elif isinstance(step, tuple):
        frames = desk.write(step[0])
        heard = both.each(partial(Twin.say, frames=frames, cuts=step[1]))
    elif isinstance(step, float):
        heard = both.each(partial(Twin.advance, seconds=step))
    elif step == "flow":
        answers: list[Frame] = [(PUB, reply, b"", b"", b"") for reply in desk.flow]
        desk.flow.clear()
        heard = both.each(partial(Twin.say, frames=answers, cuts=[]))
    else:
        heard = both.each(partial(manage, deed=step))
    desk.hear(heard)


def play(kind: str, found: Entries, world: tuple[dict[str, Any], ...], steps: list[Step]) -> None:
    both, desk = Play(kind, found), Desk()
    desk.hear(both.each(partial(configure, world=world)))
    for step in steps:
        take(both, desk, step)
        both.compare()
    both.each(partial(Twin.advance, seconds=0.2))
    for name in "CDP":
        both.each(partial(Twin.api, verb=f"CONSUMER.INFO.S.{name}"))
    both.compare()
    if kind == "file":
        both.each(Twin.restart)
        both.compare()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivery passes end, and windows are full, with as much as these worlds have."""
    monkeypatch.setattr(delivery_pass, "_PASS_MESSAGES", 16)
    monkeypatch.setattr(push, "FLOW_WINDOW_BYTES_FIRST", 2000)


def test_every_option_means_the_same_in_every_manner() -> None:
    kind = "memory"
    with entries(PATHS) as found:
        for name, value in OF_STREAM:
            play(kind, found, ({name: value}, {}, {}), every_way)
        for name, value in SHARED + OF_PULL:
            play(kind, found, ({}, {name: value}, {}), every_way)
        for name, value in SHARED + OF_PUSH:
            play(kind, found, ({}, {}, {name: value}), every_way)


def test_the_pinned_client_hears_the_same_in_every_manner() -> None:
    with entries(PATHS) as found:
        play("memory", found, ({}, {"pinned_client": True}, {}), with_pins)
    ways = ("to one request", "to requests in turn", "acks between pulls")
    assert not found.missed(
        *((manner, way) for manner in (LIBRARY, IN_PROCESS) for way in ways),
        (LIBRARY, "frames of rows with headers"),
    )
    assert len(found.missed(*((PLAIN, way) for way in PATHS))) == len(PATHS)


def test_who_waits_for_a_threshold_hears_the_same_in_every_manner() -> None:
    with entries(PATHS) as found:
        for tracked in ({}, {"ack_policy": "none"}, {"max_ack_pending": 15}):
            play("memory", found, ({}, {"overflow": True, **tracked}, {}), with_thresholds)
    assert not found.missed((LIBRARY, "thresholds in turn"), (IN_PROCESS, "thresholds in turn"))
    assert len(found.missed(*((PLAIN, way) for way in PATHS))) == len(PATHS)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_deliveries_are_the_same_in_every_manner(kind: str) -> None:
    with entries(PATHS) as found:

        @example(({}, {}, {"flow_control": True}), every_way)
        @example(({}, {}, {}), every_way)
        @example(({}, {}, {}), of_keys)
        @given(worlds, steps)
        def lives(world: tuple[dict[str, Any], ...], steps: list[Step]) -> None:
            play(kind, found, world, steps)

        lives()
    wanted = [(manner, way) for manner in (LIBRARY, IN_PROCESS) for way in FAST_WAYS]
    wanted += [(LIBRARY, way) for way in AS_WRITTEN]
    assert not found.missed(
        *wanted,
        (LIBRARY, "frames of rows"),
        (LIBRARY, "frames of keys"),
        (IN_PROCESS, "rows handed over"),
    )
    # What they are compared with must not go their ways.
    assert len(found.missed(*((PLAIN, way) for way in PATHS))) == len(PATHS)
