"""Lanes, takeover, failure policies, configurations, keys: decided without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.api.consumers import ConsumerConfig, ConsumerInfo, SequenceInfo
from headrace.errors import ConfigurationError
from headrace.groups import (
    ElasticGroup,
    GroupConfigurationError,
    MemberMapping,
    PartitioningFilter,
    StaticGroup,
)
from headrace.groups.member.config import Plan, Settings, key_function, plans
from headrace.groups.member.lease import Takeover
from headrace.handling.failure_policy import Again, DeadLetter, Give, Retry, Stop, decide
from headrace.handling.key_order import Lanes, Line

# Lanes


@given(st.lists(st.one_of(st.integers(0, 3), st.none()), max_size=60), st.integers(1, 4))
def test_lanes_keep_each_key_in_order_and_alone(steps: list[int | None], at_once: int) -> None:
    """A number adds an item of that key; None finishes what was begun first."""
    lanes: Lanes[tuple[int, int]] = Lanes()
    running: list[Any] = []
    begun: list[tuple[int, int]] = []

    def begin() -> None:
        while len(running) < at_once and (taken := lanes.take()) is not None:
            key, item = taken
            assert key not in running, "two of one key at once"
            running.append(key)
            begun.append(item)

    for number, step in enumerate(steps):
        if step is not None:
            lanes.add(step, (step, number))
        elif running:
            lanes.done(running.pop(0))
        begin()
    while running:
        lanes.done(running.pop(0))
        begin()
    assert len(lanes) == 0
    assert sorted(n for _, n in begun) == [n for n, step in enumerate(steps) if step is not None]
    for key in range(4):
        of_key = [n for k, n in begun if k == key]
        assert of_key == sorted(of_key)


@given(st.lists(st.booleans(), max_size=40))
def test_a_line_does_what_lanes_do_with_one_key(steps: list[bool]) -> None:
    """True adds an item; False finishes what was begun."""
    line, lanes = Line[int](), Lanes[int]()
    is_busy = False
    for number, adds in enumerate(steps):
        if adds:
            line.add("any", number)
            lanes.add(None, number)
        elif is_busy:
            line.done("any")
            lanes.done(None)
            is_busy = False
        assert line.has_free == (lanes.has_free and not is_busy)
        taken = line.take()
        assert taken == lanes.take()
        is_busy |= taken is not None
        assert (list(line), len(line)) == (list(lanes), len(lanes))


def test_lanes_drop_what_waits_and_keep_what_is_busy() -> None:
    lanes: Lanes[str] = Lanes()
    for key, item in ((1, "a"), (1, "b"), (2, "c")):
        lanes.add(key, item)
    assert lanes.take() == (1, "a")
    assert sorted(lanes.clear()) == ["b", "c"]
    lanes.add(1, "d")
    assert lanes.take() is None
    lanes.done(1)
    assert lanes.take() == (1, "d")


# Takeover


def message(sequence: int, consumer_sequence: int, delivered: int = 1) -> Any:
    return SimpleNamespace(
        metadata=SimpleNamespace(
            stream_seq=sequence, consumer_seq=consumer_sequence, delivered=delivered
        )
    )


def info(pending: int, delivered: int, again: int = 0, floor: int = 0) -> ConsumerInfo:
    return ConsumerInfo(
        num_ack_pending=pending,
        num_redelivered=again,
        delivered=SequenceInfo(consumer_seq=delivered, stream_seq=0),
        ack_floor=SequenceInfo(stream_seq=floor),
    )


def test_a_new_owner_begins_once_nothing_is_under_way_to_the_former_one() -> None:
    takeover: Takeover[Any] = Takeover()
    takeover.add_all(
        [message(4, 4)]
    )  # 1, 2, 3 went to the former owner, of which 1 is acknowledged
    assert not takeover.is_complete(info(pending=3, delivered=4))
    takeover.add_all([message(3, 6, delivered=2)])
    takeover.add_all([message(2, 5, delivered=2)])
    assert not takeover.is_complete(info(pending=3, delivered=4))  # it is older than these
    assert takeover.is_complete(info(pending=3, delivered=6, again=2))
    assert [each.metadata.stream_seq for each in takeover.in_order()] == [2, 3, 4]


def test_what_the_former_owner_acknowledges_late_does_not_stand_for_what_it_still_has() -> None:
    takeover: Takeover[Any] = Takeover()
    for sequence in (1, 2):  # 3 comes again later
        takeover.add_all([message(sequence, sequence + 3, delivered=2)])
    takeover.add_all([message(4, 6)])
    assert not takeover.is_complete(info(pending=4, delivered=6, again=2))
    assert not takeover.is_complete(
        info(pending=3, delivered=6, again=1)
    )  # 2 is acknowledged, late
    assert not takeover.is_complete(info(pending=2, delivered=6, again=0, floor=2))
    takeover.add_all([message(3, 7, delivered=2)])
    assert takeover.is_complete(info(pending=2, delivered=7, again=1, floor=2))


def test_of_a_message_that_came_twice_the_later_delivery_counts() -> None:
    takeover: Takeover[Any] = Takeover()
    takeover.add_all([message(7, 2)])
    takeover.add_all([message(7, 1)])
    takeover.add_all([message(7, 9)])
    assert [each.metadata.consumer_seq for each in takeover.in_order()] == [9]


def test_what_is_acknowledged_by_the_time_a_new_owner_begins_is_not_begun() -> None:
    takeover: Takeover[Any] = Takeover([message(2, 9, delivered=2), message(1, 8, delivered=2)])
    assert takeover.is_complete(info(pending=1, delivered=9, again=1, floor=1))
    assert [each.metadata.stream_seq for each in takeover.in_order(floor=1)] == [2]
    assert takeover.last_delivery() == 9


def test_a_consumer_of_which_nothing_waits_is_taken_over_at_once() -> None:
    takeover: Takeover[Any] = Takeover()
    takeover.add_all([message(1, 1)])
    assert takeover.is_complete(info(pending=1, delivered=1))
    assert takeover.is_complete(info(pending=0, delivered=1))  # no acks


def test_who_has_not_all_that_came_to_it_knows_that_nobody_else_has_anything() -> None:
    takeover: Takeover[Any] = Takeover([message(5, 5)])  # of 5 to 9, and 4 went to somebody else
    assert not takeover.has_no_former(info(pending=6, delivered=9))
    assert takeover.has_no_former(info(pending=5, delivered=9))
    assert not takeover.has_no_former(info(pending=5, delivered=9, again=1))
    assert not Takeover[Any]().has_no_former(info(pending=0, delivered=9))


# Failures


@pytest.mark.parametrize(
    ("policy", "failures", "expected"),
    [
        (Stop(), 1, Give("")),
        (Retry((0.1, 0.5)), 1, Again(0.1)),
        (Retry((0.1, 0.5)), 2, Again(0.5)),
        (Retry((0.1, 0.5)), 99, Again(0.5)),
        (Retry((0.1, 0.5), attempts=2), 1, Again(0.1)),
        (Retry((0.1, 0.5), attempts=2), 2, Give("")),
        (DeadLetter("dead", after=2, backoff=(1,)), 1, Again(1)),
        (DeadLetter("dead", after=2, backoff=(1,)), 2, Give("dead")),
        (DeadLetter("dead", after=1), 1, Give("dead")),
    ],
)
def test_what_follows_a_failure(policy: Any, failures: int, expected: Any) -> None:
    assert decide(policy, failures) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(()),
        lambda: Retry((-1,)),
        lambda: Retry(attempts=0),
        lambda: DeadLetter("d", after=0),
        lambda: DeadLetter(""),
        lambda: DeadLetter("d", backoff=()),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="accepted"):
        make()


# Configurations


def test_the_consumer_of_an_elastic_member_is_that_of_other_implementations() -> None:
    settings = Settings(
        ConsumerConfig(ack_wait=2.0, max_ack_pending=1, durable_name="x", inactive_threshold=99.0),
        is_static=False,
        layout="interoperable",
    )
    assert settings.consumer("a", ["0.>"]) == ConsumerConfig(
        name="a",
        ack_wait=2.0,
        max_ack_pending=1,
        filter_subjects=("0.>",),
        inactive_threshold=2.0,
        priority_groups=("PCG",),
        priority_policy="pinned_client",
        priority_timeout=2.0,
    )
    assert settings.pull_s == 1.0


def test_the_consumer_of_a_static_member_is_durable_and_keeps_what_the_user_says() -> None:
    settings = Settings(
        ConsumerConfig(ack_policy="none", deliver_policy="new"),
        is_static=True,
        layout="interoperable",
    )
    config = settings.consumer("g-a", ["0.>"])
    assert (config.durable_name, config.name, config.ack_wait) == ("g-a", "", 5.0)
    assert (config.ack_policy, config.deliver_policy) == ("none", "new")
    assert (config.inactive_threshold, config.priority_timeout) == (0.0, 5.0)


@pytest.mark.parametrize(
    ("config", "is_static", "text"),
    [
        (
            ConsumerConfig(ack_policy="all"),
            False,
            "the ack policy when consuming from elastic consumer groups must be explicit",
        ),
        (ConsumerConfig(deliver_subject="d"), True, "members of a group pull"),
    ],
)
def test_a_configuration_a_group_cannot_work_with(
    config: ConsumerConfig, is_static: bool, text: str
) -> None:
    with pytest.raises(GroupConfigurationError, match=text):
        Settings(config, is_static=is_static, layout="interoperable")


def test_the_plans_of_both_layouts() -> None:
    group = ElasticGroup("S", "g", 3, members=("a", "b"))
    assert plans(group, "a") == {"a": Plan("a", (0, 2), ("0.>", "2.>"))}
    assert plans(group, "c") == {}
    alone = ElasticGroup("S", "g", 3, members=("a", "b"), layout="per_partition")
    assert plans(alone, "b") == {"partition=1": Plan("partition=1", (1,), ("1.>",), True)}
    mapped = ElasticGroup(
        "S",
        "g",
        1,
        (PartitioningFilter("a.*"),),
        member_mappings=(MemberMapping("b", (0,)),),
        layout="per_partition",
    )
    listed = ElasticGroup(
        "S", "g", 1, (PartitioningFilter("a.*"),), members=("b",), layout="per_partition"
    )
    assert plans(mapped, "b") == plans(listed, "b"), "the consumer would have to be replaced"
    fixed = StaticGroup("S", "g", 2, members=("a",), layout="per_partition")
    assert plans(fixed, "a") == {
        "g=0": Plan("g=0", (0,), ("0.>",), True),
        "g=1": Plan("g=1", (1,), ("1.>",), True),
    }
    assert list(plans(StaticGroup("S", "g", 2, members=("a",)), "a")) == ["g-a"]


# Keys


@pytest.mark.parametrize(
    ("filters", "subject", "key"),
    [
        (None, "a.b", "a.b"),
        ((PartitioningFilter("a.*.*", (2,)),), "a.b.c", ("c",)),
        ((PartitioningFilter("a.*", ()), PartitioningFilter("b.*.>", (1,))), "b.x.y.z", ("x",)),
        ((PartitioningFilter("a.*", ()), PartitioningFilter("b.*.>", (1,))), "a.q", "a.q"),
        ((PartitioningFilter("a.*.*", (1, 2)),), "a.b.c", ("b", "c")),
    ],
)
def test_the_key_is_what_the_group_partitions_by(filters: Any, subject: str, key: object) -> None:
    group = ElasticGroup("S", "g", 3, filters)
    assert key_function(group)(cast("Any", SimpleNamespace(subject=subject))) == key


def test_of_a_static_group_the_partition_is_the_key() -> None:
    group = StaticGroup("S", "g", 3)
    assert key_function(group)(cast("Any", SimpleNamespace(subject="a", partition=2))) == 2
