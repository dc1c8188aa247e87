from __future__ import annotations

import dataclasses
import re

from headrace.groups.metrics import METRICS, prometheus
from headrace.groups.progress import GroupLag, MemberLag, PartitionLag, Pin

PIN = Pin("x", 5_000_000_000)
LOOK = GroupLag(
    stream="ORDERS",
    group="billing",
    kind="elastic",
    layout="interoperable",
    revision=3,
    at_ns=10_000_000_000,
    partitions=(
        PartitionLag(partition=0, member="a", lag=12, oldest_s=1.5, pin=PIN),
        PartitionLag(partition=1, member="b", lag=0),
        PartitionLag(partition=2),
    ),
    members=(
        MemberLag(
            member="a", partitions=(0,), consumers=1, pin=PIN, instances=2, lag=12, handled=9
        ),
        MemberLag(member="b", partitions=(1,), lag=None),
        MemberLag(member="c", listed=False, consumers=1, lag=0),
    ),
    group_lag=12,
    source_lag=5,
    oldest_s=1.5,
    stored=112,
    handled={("a", "t"): 9},
)


def samples(text: str) -> dict[str, float]:
    found = re.findall(r"(?m)^headrace_group_(\S+) (\S+)$", text)
    return {name: float(value) for name, value in found}


def test_each_number_has_its_labels() -> None:
    found = samples(prometheus([LOOK]))
    group = 'stream="ORDERS",group="billing"'
    assert found[f"lag_messages{{{group}}}"] == 17
    assert found[f"source_lag_messages{{{group}}}"] == 5
    assert found[f"oldest_seconds{{{group}}}"] == 1.5
    assert found[f"handled_messages_total{{{group}}}"] == 100
    assert found[f"partitions{{{group}}}"] == 3
    assert found[f"members{{{group}}}"] == 2
    assert found[f'member_lag_messages{{{group},member="a"}}'] == 12
    assert found[f'member_active{{{group},member="a"}}'] == 1
    assert found[f'member_active{{{group},member="b"}}'] == 0
    assert found[f'member_instances{{{group},member="a"}}'] == 2
    assert found[f'member_handled_messages_total{{{group},member="a"}}'] == 9
    assert found[f'partition_lag_messages{{{group},partition="0",member="a"}}'] == 12
    assert found[f'partition_oldest_seconds{{{group},partition="1",member="b"}}'] == 0


def test_what_is_not_known_is_left_out() -> None:
    text = prometheus([dataclasses.replace(LOOK, group_lag=None, oldest_s=None)])
    assert 'member_lag_messages{stream="ORDERS",group="billing",member="b"}' not in text
    assert 'partition_lag_messages{stream="ORDERS",group="billing",partition="2"' not in text
    assert "headrace_group_lag_messages{" not in text
    assert "None" not in text


def test_each_metric_is_declared_once_for_all_groups() -> None:
    other = dataclasses.replace(LOOK, group='odd"name\\')
    text = prometheus([LOOK, other])
    assert text.count("# TYPE headrace_group_lag_messages gauge\n") == 1
    assert r'headrace_group_lag_messages{stream="ORDERS",group="odd\"name\\"} 17' in text
    declared = re.findall(r"(?m)^# TYPE headrace_group_(\S+) (\S+)$", text)
    assert declared == [(each.name, each.kind) for each in METRICS]
    assert all(each.name.endswith("_total") == (each.kind == "counter") for each in METRICS)
    assert text.endswith("\n")


def test_no_group_is_no_sample() -> None:
    assert samples(prometheus([])) == {}
