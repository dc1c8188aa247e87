from __future__ import annotations

import dataclasses
import json

from headrace.cli.group.text import line, seconds_text, table
from headrace.cli.group.text import table_document as document
from headrace.groups.progress import GroupLag, MemberLag, PartitionLag, Pin, Rates

PIN = Pin("abc", 1_700_000_000_000_000_000)
LOOK = GroupLag(
    stream="ORDERS",
    group="billing",
    kind="elastic",
    layout="interoperable",
    revision=3,
    at_ns=1_700_000_090_250_000_000,
    partitions=(
        PartitionLag(partition=0, member="a", lag=12, oldest_s=1.5, pin=PIN),
        PartitionLag(partition=1, member="a", lag=0, pin=PIN),
        PartitionLag(partition=2, member="b", lag=None),
        PartitionLag(partition=3),
    ),
    members=(
        MemberLag(member="a", partitions=(0, 1), consumers=1, pin=PIN, lag=12, unacknowledged=2),
        MemberLag(member="b", partitions=(2,)),
        MemberLag(member="c"),
        MemberLag(member="d", listed=False, consumers=1, instances=1, lag=0),
    ),
    group_lag=12,
    source_lag=5,
    oldest_s=1.5,
    stored=112,
    handled={("a", "t"): 9},
)
RATES = Rates(1.0, 3.0, 2.0, {"a": 2.0}, {"a": 3.0})


def test_the_table_for_people() -> None:
    assert table(LOOK, RATES) == [
        "elastic group 'billing' of stream 'ORDERS', layout interoperable",
        "lag 17, of which 5 still at the source, oldest 1.5s, 3.0/s come, 2.0/s are handled",
        "",
        "PARTITION  MEMBER  INSTANCE  SINCE  LAG  OLDEST",
        "        0  a       abc        1.5m   12    1.5s",
        "        1  a       abc        1.5m    0",
        "        2  b       -                  ?",
        "        3  -       -                  ?",
        "",
        "MEMBER  STATE   PARTITIONS  INSTANCES  LAG  UNACKED  REDELIVERED  HANDLED/S",
        "a       active  0-1                 0   12        2            0        2.0",
        "b       absent  2                   0    ?        0            0",
        "c       spare   -                   0    ?        0            0",
        "d       left    -                   1    0        0            0",
    ]


def test_an_instance_that_says_who_it_is_is_named() -> None:
    assert table(LOOK, RATES, {PIN.since_ns: "host/1", 5: "other/2"})[4].split() == [
        *("0", "a", "host/1", "1.5m", "12", "1.5s")
    ]


def test_the_table_fits_the_screen() -> None:
    many = tuple(PartitionLag(partition=number, lag=0) for number in range(100))
    shown = table(dataclasses.replace(LOOK, partitions=many), height=20)
    assert len(shown) == 20
    assert shown[13].split() == ["…", "91", "more"]
    assert shown[12].split()[0] == "8"
    assert shown[-1].startswith("d ")
    assert len(table(LOOK, height=5)) == 5  # whatever there is room for


def test_the_line_for_a_log() -> None:
    assert line(LOOK) == (
        "2023-11-14T22:14:50.250Z lag 17 source 5 a[0-1]=active,12 b[2]=absent,? c[]=spare,? d[]=left,0"
    )


def test_the_document_for_programs() -> None:
    found = json.loads(json.dumps(document(LOOK, RATES)))
    assert found["at"] == "2023-11-14T22:14:50.250Z"
    assert (found["lag"], found["waiting"], found["source_lag"]) == (17, 12, 5)
    assert found["partitions"][0] == {
        "partition": 0,
        "member": "a",
        "lag": 12,
        "oldest_seconds": 1.5,
        "pinned_client": "abc",
        "instance": None,
        "generation": PIN.since_ns,
    }
    named = document(LOOK, RATES, {PIN.since_ns: "host/1"})
    assert named["partitions"][0]["instance"] == "host/1"
    assert found["members"][0]["handled_per_second"] == 2.0
    assert found["members"][1]["pinned_client"] is None
    assert document(LOOK)["handled_per_second"] is None


def test_durations_are_short() -> None:
    assert [seconds_text(s) for s in (0.04, 90, 7200, 86_400 * 2, float("inf"))] == [
        "0.0s",
        "1.5m",
        "2.0h",
        "2.0d",
        "for ever",
    ]
