"""A group under simulation: from one seed come its members, what they read, and what happens to them.

``HEADRACE_GROUP_SEEDS`` sets how many seeds are played (20; ``make test-all`` plays 250),
``HEADRACE_GROUP_SEED`` the first one (0). A seed that fails names itself; ``HEADRACE_GROUP_SEED=<seed>
HEADRACE_GROUP_SEEDS=1`` plays it again, step by step the same, and
``python tests/sim/groups/story.py <seed>`` tells what happened in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.handling.key_order import Lanes
from portions import beginning_with, portion, some
from sim.groups.coverage import EVENTS, PATHS
from sim.groups.loop import SECOND, Process
from sim.groups.network import Wire
from sim.groups.sabotage import SABOTAGES, Sabotage
from sim.groups.simulation import simulate_many, trace
from sim.groups.world import World
from sim.whole.coverage import watched

SEEDS = int(os.environ.get("HEADRACE_GROUP_SEEDS", "20"))
FIRST = int(os.environ.get("HEADRACE_GROUP_SEED", "0"))
TOLD_EVERY = 500
FOUND_OUT_BY = 100  # seeds, at the latest
COVERED_FROM = 500  # so many seeds enter every path
_BUSY = {"genre": "wild", "backlog": 5, "handler_seconds": 0.3, "max_ack_pending": 50}
_CHANGES = {"kind": "elastic", "changes": ("map", "add", "drop")}
# A link lost with several messages on their way, too rare to be left to chance.
_LOSSY = {**_BUSY, "faults": ("cut",), "handler_seconds": 0.1}
LOSSY_SEEDS = 30
# Partitions, filters and mappings that change, and who the members are, too.
_REFORMED: dict[str, Any] = {
    "kind": "elastic",
    "changes": ("reform", "add", "drop", "map", "rejoin"),
}
CHANGED_SEEDS = (*range(portion(29, 10)), 29)  # in the last one the broker is killed
# A network on which renewals take longer than a lease, and nothing else happens that nobody wants.
_SLOW = {**_BUSY, "members": 1, "instances": 2, "faults": (), "changes": ("rejoin",)}
_SLOW.update({"delay": 0.015, "ack_wait": 1.0, "slow_share": 0.5, "sync_share": 0.0})
# What failed once, in the casts in which it did; what happens in them has shifted with the code since.
KEPT: list[tuple[int, dict[str, Any]]] = [
    (33, {}),  # a consumer was deleted whose owner only a restarted server had forgotten
    (341, {}),  # … or that had just been told to step down
    # An acknowledgement that came late stood for a message that the former owner still had.
    (13, {**_BUSY, "kind": "elastic", "concurrency": 3}),
    # A record that changed while a member ended began something that nobody ended.
    (172, {**_BUSY, **_CHANGES, "faults": ("freeze",)}),
    # Two that stood by deleted a consumer at once, one of them the other's new one.
    (82, {**_BUSY, **_CHANGES, "instances": 2, "layout": "interoperable"}),
    # A lease that began with little more than a third was to be renewed when it had just ended.
    (13709, {}),
    # Messages that had been on their way for long were taken for ours as long as the pin.
    (14308, {}),
    # Two that stood by deleted a consumer, the second of them after a look at the first one's former one.
    (28039, {}),
    (261, {"handler": "blocks"}),  # another handler began while a renewal was under way
    # A stream that was numbered as it once had been was copied from where it had been then.
    (765, _REFORMED),
    # Who changes groups had a dozen changes in hand, and was given the time of one.
    (7750, _REFORMED),
    # An acknowledgement was confirmed to the former owner of a consumer that was deleted and made again: the
    # server took it for that of the next owner, who handled the message all the same.
    (7434, {}),
    (11868, {}),  # … and so to one who was leaving
    # A handler that had failed was called again when a thread was free, whoever owned the message by then.
    (4639, {}),
    # Who left as it was pinned waited for messages to be taken that nobody took any more.
    (50062, {}),
    # Another attempt began while the lease was to be renewed, and kept the loop as the handlers before had.
    (59563, {}),
    # Who stood by and left deleted a consumer that it had found unused; one who had come since was given a
    # message by it before, and handled it once more.
    (66267, {}),
    (31137, {}),  # the broker was away for long: most was published when nothing failed any more
    (1235, _SLOW),  # two of the answers that a renewal waits for came late
]


@pytest.mark.timeout(14400)
def test_keys_stay_in_order_whatever_happens_to_members_and_broker() -> None:
    begun = time.process_time()
    events: Counter[str] = Counter()
    with watched(PATHS) as paths:
        for first in range(FIRST, FIRST + SEEDS, TOLD_EVERY):
            last = min(first + TOLD_EVERY, FIRST + SEEDS)
            try:
                events += simulate_many(range(first, last))
            except AssertionError as error:
                print(error, flush=True)  # at once: whoever ends a long run has not seen its end
                raise
            each = (time.process_time() - begun) / (last - FIRST) * 1000
            print(f"seeds {FIRST} to {last - 1}: {each:.0f} ms each, {events['run']} runs")
        if SEEDS >= COVERED_FROM:
            simulate_many(range(LOSSY_SEEDS), **_LOSSY)
    if SEEDS >= COVERED_FROM:
        missed = [label for label in PATHS if not paths[label]]
        assert not missed, f"no seed has entered: {missed}"
        rare = [event for event in EVENTS if not events[event]]
        assert not rare, f"never happened: {rare}"


def test_a_group_is_changed_without_loss_or_disorder() -> None:
    """Partitions and filters, interrupted and undone, while members come, go and fail, as the broker does."""
    counts = simulate_many(CHANGED_SEEDS, **_REFORMED)
    wanted = ("changed", "change interrupted", "change undone", "planned change", "broker killed")
    assert all(counts[event] for event in wanted), counts


@pytest.mark.parametrize(("seed", "cast"), some(KEPT, 5))
def test_a_seed_that_failed_once(seed: int, cast: dict[str, Any]) -> None:
    simulate_many([seed], **cast)


@pytest.mark.parametrize("sabotage", some(SABOTAGES, 3), ids=lambda each: each.breaks.__name__)
def test_a_member_that_breaks_its_word_is_found_out(
    sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage.breaks(monkeypatch)
    with pytest.raises(AssertionError, match=r"^seed \d+: "):
        simulate_many(beginning_with(sabotage.seed, range(FOUND_OUT_BY)), **sabotage.cast)


@pytest.mark.parametrize(
    ("held_up", "pause", "is_a_cause"),
    [
        ([0.3, 0.3], 0.1, True),
        ([0.2, 0.2, 0.2], 0.2, True),
        ([0.2, 0.2], 0.1, False),  # a renewal comes through in time
        ([0.3, 0.3], 1.1, False),  # and so do two, one after the other
        ([0.015] * 60, 0.01, False),  # as ever
    ],
)
def test_only_a_wire_that_is_slow_for_most_of_a_lease_is_a_cause(
    held_up: list[float], pause: float, is_a_cause: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(0, delay=0.01, ack_wait=1.0)
    process = Process(world.universe, "m1/1")
    wire = Wire(world.network, 1, process, world.host, _Deaf())
    world.run(2.0)
    drawn = [0]
    monkeypatch.setattr(world.network, "draw_ns", lambda: drawn[0])
    for seconds in held_up:
        drawn[0] = round(seconds * SECOND)
        wire.frames_received([], 0)
        world.run(pause)
    told = [whom for _, whom in world.ledger.disturbances if whom is process]
    world.universe.bury()
    assert bool(told) is is_a_cause


class _Deaf:
    """An end of a connection to which nothing matters."""

    def frames_received(self, frames: object, size: int) -> None: ...

    def connection_lost(self, reason: object) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def test_a_seed_that_fails_says_how_to_play_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lanes, "has_free", False)  # nothing is ever handled
    with pytest.raises(AssertionError, match="seed 3: not handled") as failure:
        simulate_many([3], concurrency=3)
    assert "story.py 3 \"{'concurrency': 3}\"" in str(failure.value)


def test_a_seed_plays_the_same_in_another_process_with_other_hashes() -> None:
    seeds = range(portion(6, 2))
    command = [sys.executable, "-m", "sim.groups.simulation", *map(str, seeds)]
    here = str(Path(__file__).parents[1])
    told = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": here},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    mine = "".join(f"{trace(seed)}\n" for seed in seeds)
    assert [process.communicate()[0] for process in told] == [mine, mine]
