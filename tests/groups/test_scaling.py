from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.groups import GroupConfigurationError
from headrace.groups.progress import GroupLag, MemberLag, PartitionLag, Pin
from headrace.groups.record.assignment import assign
from headrace.groups.scaling import Autoscaler, Decision, Experience, Policy, pool_of

EVERY_S = 5
NS = 1_000_000_000


class Mill:
    """A group in arithmetic: messages pour in evenly, each member handles so many per second."""

    def __init__(
        self, partitions: int, members: tuple[str, ...], *, arrive: float, handle: float
    ) -> None:
        self.partitions = partitions
        self.members = members
        self.arrive = arrive
        self.handle = handle
        self.weights = [1 / partitions] * partitions
        self.waiting = [0.0] * partitions
        self.handled = dict.fromkeys(members, 0.0)
        self.seconds = 0
        self.idle: set[str] = set()  # members without an instance

    def run(self, seconds: int) -> None:
        self.seconds += seconds
        for number, weight in enumerate(self.weights):
            self.waiting[number] += self.arrive * weight * seconds
        for name, numbers in assign(self.partitions, self.members).items():
            left = 0.0 if name in self.idle else self.handle * seconds
            for number in sorted(numbers, key=self.waiting.__getitem__, reverse=True):
                done = min(left, self.waiting[number])
                self.waiting[number] -= done
                self.handled[name] = self.handled.get(name, 0.0) + done
                left -= done

    def look(self) -> GroupLag:
        owned = assign(self.partitions, self.members)
        owners = {number: name for name, numbers in owned.items() for number in numbers}
        waiting = [round(each) for each in self.waiting]
        members = tuple(
            MemberLag(
                member=name,
                partitions=numbers,
                consumers=int(name not in self.idle),
                pin=None if name in self.idle else Pin("x", 1),
                lag=sum(waiting[number] for number in numbers),
            )
            for name, numbers in owned.items()
        )
        return GroupLag(
            stream="S",
            group="g",
            kind="elastic",
            layout="interoperable",
            revision=1,
            at_ns=self.seconds * NS,
            partitions=tuple(
                PartitionLag(partition=n, member=owners.get(n, ""), lag=waiting[n])
                for n in range(self.partitions)
            ),
            members=members,
            group_lag=sum(waiting),
            source_lag=0,
            oldest_s=None,
            stored=sum(waiting) + round(sum(self.handled.values())),
            handled={(name, "t"): round(count) for name, count in self.handled.items()},
        )


def run(
    mill: Mill,
    scaler: Autoscaler,
    seconds: int,
    each: Callable[[Decision], object] = lambda decision: None,
) -> list[tuple[int, int]]:
    """Apply what is decided; when the number of members changed, and to what."""
    changes: list[tuple[int, int]] = []
    for _ in range(seconds // EVERY_S):
        mill.run(EVERY_S)
        decision = scaler.decide(mill.look())
        each(decision)
        if decision.action != "hold":
            mill.members = tuple(sorted(decision.members))
            changes.append((mill.seconds, len(mill.members)))
    return changes


def scaler(pool: int = 16, **policy: Any) -> Autoscaler:
    return Autoscaler(Policy(**{"memory_seconds": 10**9, **policy}), pool_of(["w-{}"], pool))


@settings(deadline=None, max_examples=20)
@given(
    partitions=st.integers(1, 16),
    start=st.integers(1, 16),
    load=st.floats(0, 20),
    minimum=st.integers(1, 4),
    maximum=st.sampled_from([0, 4, 6, 16]),
    step=st.sampled_from(["one", "proportional"]),
)
def test_a_constant_load_ends_in_a_constant_number_within_bounds(
    partitions: int, start: int, load: float, minimum: int, maximum: int, step: str
) -> None:
    pool = pool_of(["w-{}"], 16)
    mill = Mill(partitions, pool[:start], arrive=load * 10, handle=10)
    auto = scaler(minimum=minimum, maximum=maximum, step=step, down_looks=6, cooldown_seconds=20)
    high = min(maximum or partitions, partitions)
    decisions: list[Decision] = []
    changes = run(mill, auto, 4000, decisions.append)

    for decision in decisions:
        assert min(minimum, high) <= len(decision.members) <= high
        assert len(set(decision.members)) == len(decision.members)
        assert decision.reasons
    if step == "one":
        sizes = [len(each.members) for each in decisions]
        assert all(abs(b - a) <= 1 for a, b in pairwise(sizes))
    shares = [count / partitions for count in range(1, partitions + 1)]
    if all(abs(load * share - 1) > 0.05 for share in shares):  # else it takes hours to fall behind
        assert not [when for when, _ in changes if when > 2500], changes
    runs = [b > a for (_, a), (_, b) in pairwise(changes)]
    turns = sum(a != b for a, b in pairwise(runs))
    assert turns <= 2 + partitions, changes  # it may try each number of members once

    busiest = max(map(len, assign(partitions, mill.members).values())) / partitions
    assert busiest * load < 1.05 or len(mill.members) == high, (len(mill.members), load)


def test_what_others_work_off_is_not_taken_for_what_the_group_can_go_on_with() -> None:
    # Of three members one has two of the four partitions, and too much to do; the others, which were behind
    # as well, handle more than comes for them.
    mill = Mill(4, ("w-0",), arrive=22.5, handle=10)
    decisions: list[Decision] = []
    auto = scaler(down_looks=6, cooldown_seconds=20)
    changes = run(mill, auto, 4000, decisions.append)
    assert [count for _, count in changes] == [2, 3, 4]
    assert decisions[-1].limit == pytest.approx(20, rel=0.05)


def test_it_grows_until_the_load_is_handled_and_shrinks_when_it_is_gone() -> None:
    mill = Mill(12, ("w-0",), arrive=35, handle=10)
    auto = scaler()
    up = run(mill, auto, 3600)
    assert [count for _, count in up[:3]] == [2, 3, 4]
    assert sum(mill.waiting) < 35 * 30
    mill.arrive = 5
    down = run(mill, auto, 7200)
    assert [count for _, count in down][-1] == 1
    assert mill.members == ("w-0",)  # the last of the pool goes first


def test_one_step_where_the_load_asks_for_several() -> None:
    mill = Mill(12, ("w-0",), arrive=50, handle=10)
    first = run(mill, scaler(step="proportional"), 600)[0][1]
    assert first >= 7  # 50/s at 80 % of 10/s each


def test_it_waits_for_several_looks_and_for_the_cooldown() -> None:
    mill = Mill(8, ("w-0",), arrive=100, handle=10)
    texts: list[str] = []
    changes = run(
        mill,
        scaler(up_looks=4, cooldown_seconds=100),
        600,
        lambda decision: texts.append(decision.reasons[-1]),
    )
    assert "too far behind, 1 of 4 looks" in texts
    assert "too far behind, 3 of 4 looks" in texts
    assert any("no change for 95 s" in text for text in texts)
    times = [when for when, _ in changes]
    assert all(b - a >= 100 for a, b in pairwise(times))


def test_it_does_not_shrink_to_what_was_too_few_before() -> None:
    mill = Mill(12, ("w-0", "w-1", "w-2"), arrive=19, handle=10)
    last: list[Decision] = []
    changes = run(mill, scaler(down_looks=6), 6000, last.append)
    assert [count for _, count in changes] == [2, 1, 2, 3]  # tried, and learnt
    assert "2 members would be too busy" in last[-1].reasons[-1]
    assert last[-1].limit == pytest.approx(20, rel=0.05)


def test_more_members_do_not_help_a_partition_that_has_one_for_itself() -> None:
    mill = Mill(4, ("w-0", "w-1", "w-2"), arrive=30, handle=10)
    mill.weights = [0.05, 0.9, 0.05, 0.0]  # partition 1 is w-1's alone
    last: list[Decision] = []
    assert run(mill, scaler(pool=4), 1200, last.append) == []
    assert "more members would not help" in last[-1].reasons[-1]
    assert last[-1].reasons[-1].endswith("(1)")


def test_stuck_members_are_not_too_few() -> None:
    mill = Mill(4, ("w-0",), arrive=30, handle=0)
    last: list[Decision] = []
    assert run(mill, scaler(), 600, last.append) == []
    assert last[-1].reasons[-1].startswith("nothing at all is handled")
    assert last[-1].behind_s == math.inf
    assert "behind for ever" in last[-1].reasons[0]


def test_the_bounds_hold_at_once() -> None:
    few = scaler(minimum=3).decide(Mill(6, ("w-0",), arrive=0, handle=1).look())
    assert (few.added, few.action) == (("w-1", "w-2"), "up")
    names = tuple(f"w-{number}" for number in range(6))
    many = scaler(maximum=4).decide(Mill(6, names, arrive=0, handle=1).look())
    assert (many.dropped, many.action) == (("w-4", "w-5"), "down")
    idle = scaler().decide(Mill(2, names, arrive=0, handle=1).look())
    assert len(idle.members) == 2  # more than partitions have nothing to do


def test_only_names_with_an_instance_are_added() -> None:
    mill = Mill(8, ("w-0",), arrive=100, handle=10)
    auto = scaler(up_looks=1)
    mill.run(60)
    auto.decide(mill.look())
    mill.run(60)
    decision = auto.decide(mill.look(), live={"w-0", "w-3", "stranger"})
    assert decision.added == ("w-3",)
    decision = auto.decide(mill.look(), live={"w-0"})
    assert decision.action == "hold"
    assert decision.reasons[-1] == "but no other name of the pool has an instance"


def test_a_group_without_any_instance_gets_one_that_lives() -> None:
    mill = Mill(8, ("w-0",), arrive=10, handle=10)
    mill.idle = {"w-0"}
    auto = scaler(up_looks=1)
    for _ in range(2):
        mill.run(60)
        decision = auto.decide(mill.look(), live={"w-5"})
    assert decision.added == ("w-5",)


def test_members_that_are_not_of_the_pool_stay() -> None:
    mill = Mill(8, ("mine", "w-0", "yours"), arrive=0, handle=10)
    auto = scaler(down_looks=1, cooldown_seconds=0)
    last: list[Decision] = []
    run(mill, auto, 120, last.append)
    assert mill.members == ("mine", "yours")
    assert last[-1].reasons[-1] == "but no member is one of the pool"


def test_a_change_by_somebody_else_counts_as_a_change() -> None:
    mill = Mill(8, ("w-0", "w-1"), arrive=0, handle=10)
    auto = scaler(down_looks=3)
    run(mill, auto, 10)
    mill.members = ("w-0", "w-1", "w-2")
    mill.run(EVERY_S)
    assert auto.decide(mill.look()).reasons[-1] == "a rate takes two looks"
    mill.run(EVERY_S)
    assert "no change for 55 s" in auto.decide(mill.look()).reasons[-1]


def test_what_is_not_known_changes_nothing() -> None:
    auto = scaler()
    look = Mill(2, ("w-0",), arrive=1, handle=1).look()
    unknown = GroupLag(**{**{f: getattr(look, f) for f in look.__slots__}, "group_lag": None})
    decision = auto.decide(unknown)
    assert (decision.action, decision.reasons) == ("hold", ("how much waits is not known",))


def test_what_was_too_few_is_tried_again_ever_more_rarely() -> None:
    seen = Experience(100)
    seen.behind(3, 30.0, 0)
    assert seen.limit(4, 100 * NS) == seen.limit(3, 100 * NS) == 30.0
    assert seen.limit(2, 0) is None
    assert seen.limit(3, 101 * NS) is None
    seen.keeping_up()
    seen.behind(3, 28.0, 200 * NS)
    seen.behind(3, 29.0, 210 * NS)  # the same time of trouble
    assert seen.limit(3, 410 * NS) == 29.0
    assert seen.limit(3, 411 * NS) is None


@pytest.mark.parametrize(
    ("setting", "accepted"),
    [
        ({"minimum": 0}, "minimum is 0; accepted: 1 or more"),
        ({"minimum": 3, "maximum": 2}, "maximum is 2; accepted: the minimum or more"),
        ({"target_seconds": 0}, "target_seconds is 0; accepted: more than 0"),
        ({"busy": 1.5}, "busy is 1.5; accepted: more than 0, at most 1"),
        ({"step": "two"}, "step is 'two'; accepted: 'one' and 'proportional'"),
    ],
)
def test_a_wrong_policy_is_refused(setting: dict[str, Any], accepted: str) -> None:
    with pytest.raises(GroupConfigurationError) as caught:
        Policy(**setting)
    assert str(caught.value) == accepted


def test_a_pool_is_names_and_patterns() -> None:
    assert pool_of(["a", "w-{}"], 2) == ("a", "w-0", "w-1")
    assert pool_of(["a", "a"], 2) == ("a",)
    with pytest.raises(GroupConfigurationError, match="member name 'a b'"):
        pool_of(["a b"], 2)
    with pytest.raises(GroupConfigurationError, match="the pool is empty"):
        pool_of([], 2)
