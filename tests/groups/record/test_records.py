"""Records byte for byte as others write and read them, and what of them is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.api.streams import SubjectTransformConfig
from headrace.errors import InvalidSubjectError
from headrace.groups import (
    ElasticGroup,
    GroupConfigurationError,
    GroupRecordError,
    MemberMapping,
    PartitioningFilter,
    StaticGroup,
)
from headrace.groups.record.assignment import transforms
from headrace.transforms import SubjectTransform

MAPPINGS = (MemberMapping("m1", (0, 2)), MemberMapping("m2", (1,)))

STATIC = [
    (StaticGroup("S", "g", 3), b'{"max_members":3}'),
    (
        StaticGroup("S", "g", 3, ("foo.*", "bar.>"), ("m1", "m2")),
        rb'{"max_members":3,"filters":["foo.*","bar.\u003e"],"members":["m1","m2"]}',
    ),
    (
        StaticGroup("S", "g", 3, ("foo.*",), (), MAPPINGS),
        (
            b'{"max_members":3,"filters":["foo.*"],"member_mappings":'
            b'[{"member":"m1","partitions":[0,2]},{"member":"m2","partitions":[1]}]}'
        ),
    ),
    (
        StaticGroup("S", "g", 3, (), ("m1",), start_sequence=7),
        b'{"partitions":3,"start_sequence":7,"members":["m1"]}',
    ),
    (
        StaticGroup("S", "g", 3, (), ("m1",), layout="per_partition"),
        b'{"layout":"per_partition","partitions":3,"members":["m1"]}',
    ),
]
ELASTIC = [
    (ElasticGroup("S", "g", 3), b'{"max_members":3,"partitioning_filters":null}'),
    (ElasticGroup("S", "g", 3, ()), b'{"max_members":3,"partitioning_filters":[]}'),
    (
        ElasticGroup(
            "S", "g", 3, (PartitioningFilter("foo.*.*", (1, 2)),), 100, 1048576, ("m2", "m1")
        ),
        (
            b'{"max_members":3,"partitioning_filters":[{"filter":"foo.*.*","partitioning_wildcards":[1,2]}],'
            b'"max_buffered_msg":100,"max_buffered_bytes":1048576,"members":["m2","m1"]}'
        ),
    ),
    (
        ElasticGroup(
            "S", "g", 3, (PartitioningFilter("a.>"), PartitioningFilter("b.*", ())), -1, -1
        ),
        (
            rb'{"max_members":3,"partitioning_filters":[{"filter":"a.\u003e","partitioning_wildcards":null},'
            rb'{"filter":"b.*","partitioning_wildcards":[]}],"max_buffered_msg":-1,"max_buffered_bytes":-1}'
        ),
    ),
    (
        ElasticGroup("S", "g", 3, None, 0, 0, (), MAPPINGS, "per_partition"),
        (
            b'{"layout":"per_partition","partitions":3,"partitioning_filters":null,"member_mappings":'
            b'[{"member":"m1","partitions":[0,2]},{"member":"m2","partitions":[1]}]}'
        ),
    ),
]


@pytest.mark.parametrize(("group", "value"), [*STATIC, *ELASTIC])
def test_a_record_is_written_as_others_write_it(
    group: StaticGroup | ElasticGroup, value: bytes
) -> None:
    assert group.encode() == value
    read = type(group).decode("S", "g", value, 7)
    assert (read, read.revision) == (group, 7)
    assert read.encode() == value  # null stays null, and an empty list one


def test_the_names_of_the_document_are_read() -> None:
    value = (
        b'{"max_members":4,"filter":"foo.*.*","partitioning-wildcards":[1],"msg-buffer-size":50,'
        b'"member-mappings":[{"member":"a","partitions":[0,1,2,3]}]}'
    )
    assert ElasticGroup.decode("S", "g", value) == ElasticGroup(
        "S",
        "g",
        4,
        (PartitioningFilter("foo.*.*", (1,)),),
        50,
        member_mappings=(MemberMapping("a", (0, 1, 2, 3)),),
    )
    value = (
        b'{"max_members":1,"filter":"foo.*","member-mappings":[{"member":"a","partitions":[0]}]}'
    )
    assert StaticGroup.decode("S", "g", value) == StaticGroup(
        "S", "g", 1, ("foo.*",), member_mappings=(MemberMapping("a", (0,)),)
    )


def test_what_others_add_is_passed_over() -> None:
    value = b' {"max_members": 2, "members": null, "later": {"x": [1]}, "filters": []}\n'
    assert StaticGroup.decode("S", "g", value) == StaticGroup("S", "g", 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[1]", r"is no JSON object: b'\[1\]'"),
        (b"{}", "is invalid: the max number of members must be >= 1"),
        (b'{"max_members":"3"}', "has max_members '3'; accepted: a whole number"),
        (b'{"max_members":true}', "has max_members True; accepted: a whole number"),
        (b'{"max_members":1,"members":"m"}', "has members 'm'; accepted: a list"),
        (b'{"max_members":1,"members":[1]}', "has members 1; accepted: a list of texts"),
        (b'{"max_members":1,"members":["a.b"]}', r"is invalid: member name 'a\.b'"),
        (
            b'{"max_members":1,"member_mappings":[3]}',
            "has member_mappings 3; accepted: a list of obj",
        ),
        (b'{"max_members":1,"member_mappings":[{}]}', "has member None; accepted: a text"),
        (
            b'{"max_members":1,"member_mappings":[{"member":"a","partitions":["0"]}]}',
            "has partitions '0'; accepted: a list of whole numbers",
        ),
        (b'{"partitions":3}', "the max number of members must be >= 1"),
        (
            b'{"layout":"of tomorrow","partitions":3}',
            (
                "has the layout 'of tomorrow', which this version does not know; it knows 'interoperable' "
                "and 'per_partition'"
            ),
        ),
        (b'{"layout":["x"],"partitions":3}', "has the layout"),
        (b'{"layout":' * 5000, "is no JSON: exceeded max depth"),
    ],
)
def test_a_damaged_record_is_told(value: bytes, text: str) -> None:
    for kind, word in ((StaticGroup, "static"), (ElasticGroup, "elastic")):
        with pytest.raises(GroupRecordError, match=text) as caught:
            kind.decode("S", "g", value)
        assert f"{word} group 'g' of stream 'S'" in str(caught.value)


def test_who_does_not_know_layouts_refuses_what_it_would_misread() -> None:
    """Others find no ``max_members``, and that is the first thing they check."""
    for group in (STATIC[-1][0], ELASTIC[-1][0]):
        assert json.loads(group.encode()).get("max_members", 0) < 1


# Whatever is valid is read as it was written

names = st.text("abcXYZ-_=019", min_size=1, max_size=4)
tokens = st.text('az<&é\\"', min_size=1, max_size=3)
patterns = st.lists(tokens | st.just("*"), min_size=1, max_size=4).map(".".join)


@st.composite
def memberships(draw: st.DrawFn, partitions: int) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"members": tuple(draw(st.lists(names, max_size=5)))}
    owners = draw(st.lists(names, min_size=1, max_size=partitions, unique=True))
    numbers = draw(st.permutations(range(partitions)))
    mappings = [MemberMapping(o, tuple(numbers[i :: len(owners)])) for i, o in enumerate(owners)]
    return {"member_mappings": tuple(mappings)}


@st.composite
def filters(draw: st.DrawFn) -> PartitioningFilter:
    pattern = draw(patterns) + draw(st.sampled_from([".*", ".>"]))
    wildcards = pattern.split(".").count("*")
    chosen = draw(st.lists(st.integers(1, wildcards), unique=True)) if wildcards else []
    return PartitioningFilter(pattern, draw(st.sampled_from([tuple(chosen), None])))


@st.composite
def groups(draw: st.DrawFn) -> StaticGroup | ElasticGroup:
    partitions = draw(st.integers(1, 12))
    layout = draw(st.sampled_from(["interoperable", "per_partition"]))
    common = draw(memberships(partitions)) | {"layout": layout}
    if draw(st.booleans()):
        wanted = tuple(draw(st.lists(patterns, max_size=3)))
        return StaticGroup("S", "g", partitions, wanted, **common)
    wanted_filters = draw(st.none() | st.lists(filters(), max_size=3).map(tuple))
    buffers = draw(st.integers(-1, 2**40)), draw(st.integers(-1, 2**40))
    return ElasticGroup("S", "g", partitions, wanted_filters, *buffers, **common)


@given(groups())
def test_every_group_is_read_as_it_was_written(group: StaticGroup | ElasticGroup) -> None:
    group.validate()
    value = group.encode()
    read = type(group).decode("S", "g", value)
    assert read == group
    assert read.encode() == value
    assert value.translate(None, b"<>&") == value  # they are escaped, as Go does
    assert group.differences(read) == []  # type: ignore[arg-type]


plain = st.sampled_from([None, True, 0, 1, 2, -1, 70_000, 1.5, "", "a", "a.b", "interoperable"])
json_values = plain | st.lists(plain, max_size=3)
fields = st.sampled_from(
    [
        "max_members",
        "partitions",
        "layout",
        "filters",
        "filter",
        "members",
        "member_mappings",
        "member-mappings",
        "member",
        "partitioning_filters",
        "partitioning_wildcards",
        "partitioning-wildcards",
        "max_buffered_msg",
    ]
)


@given(
    st.dictionaries(
        fields, json_values | st.lists(st.dictionaries(fields, json_values), max_size=3)
    )
)
def test_whatever_is_stored_is_a_group_or_a_damaged_record(value: dict[str, Any]) -> None:
    for kind in (StaticGroup, ElasticGroup):
        try:
            read = kind.decode("S", "g", json.dumps(value).encode())
        except GroupRecordError:
            continue
        assert kind.decode("S", "g", read.encode()) == read


# What is refused, in the words of the shipped implementation


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"max_members": 0}, "the max number of members must be >= 1"),
        ({"max_members": True}, "max_members is True; accepted: a whole number"),
        ({"max_members": 2.0}, "max_members is 2.0; accepted: a whole number"),
        ({"max_members": 65_537}, "max_members is 65537; accepted: at most 65536"),
        ({"layout": "x"}, "layout is 'x'; accepted are 'interoperable' and 'per_partition'"),
        (
            {"members": ("a",), "member_mappings": MAPPINGS},
            "either members or member mappings must be provided, not both",
        ),
        ({"members": ("a", "")}, "member name ''"),
        ({"members": ("a" * 129,)}, "accepted are 1 to 128 of"),
        (
            {"max_members": 1, "member_mappings": MAPPINGS},
            "the number of member mappings must be between 1 and the max number of members",
        ),
        ({"member_mappings": (MAPPINGS[0], MAPPINGS[0])}, "member names must be unique"),
        (
            {"member_mappings": (MAPPINGS[0], MemberMapping("x", (2,)))},
            "partition numbers must be used only once",
        ),
        (
            {"member_mappings": (MemberMapping("x", (0, 1, 3)),)},
            "partition numbers must be between 0 and one less than the max number of members",
        ),
        ({"member_mappings": (MemberMapping("x", (0, 1)),)}, "must be equal to the max number"),
    ],
)
def test_what_both_kinds_refuse(values: dict[str, Any], text: str) -> None:
    for kind in (StaticGroup, ElasticGroup):
        with pytest.raises(GroupConfigurationError, match=text):
            kind("S", "g", **({"max_members": 3} | values)).validate()


def test_a_partition_that_nobody_has_is_told_in_each_ones_words() -> None:
    mappings = (MemberMapping("x", (0, 1)),)
    with pytest.raises(
        GroupConfigurationError, match="numbers specified in the mappings must be eq"
    ):
        StaticGroup("S", "g", 3, member_mappings=mappings).validate()
    with pytest.raises(GroupConfigurationError, match="unique partition numbers must be equal to"):
        ElasticGroup("S", "g", 3, member_mappings=mappings).validate()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (PartitioningFilter(""), "partitioning filters must have a non-empty filter"),
        (
            PartitioningFilter("foo.bar"),
            r"partitioning filters must have at least one \* wildcard or end with > wildcard",
        ),
        (
            PartitioningFilter("foo.*", (1, 1)),
            r"the number of partitioning wildcards must not be larger than the total number of \* wild",
        ),
        (PartitioningFilter("*.*", (1, 1)), "partitioning wildcard indexes must be unique"),
        (
            PartitioningFilter("foo.*", (2,)),
            r"partitioning wildcard indexes must be between 1 and the number of \* wildcards in the fil",
        ),
        (PartitioningFilter("foo.*", (0,)), "indexes must be between 1"),
        (PartitioningFilter("foo..*"), r"filter 'foo\.\.\*': accepted are subject patterns"),
    ],
)
def test_filters_that_elastic_groups_refuse(wrong: PartitioningFilter, text: str) -> None:
    with pytest.raises(GroupConfigurationError, match=text):
        ElasticGroup("S", "g", 3, (PartitioningFilter("ok.>"), wrong)).validate()


def test_the_rest_that_is_refused() -> None:
    with pytest.raises(
        GroupConfigurationError, match="filter 'a b': accepted are subject patterns"
    ):
        StaticGroup("S", "g", 1, ("a b",)).validate()
    for name in ("max_buffered_messages", "max_buffered_bytes"):
        values: dict[str, Any] = {name: -2}
        with pytest.raises(GroupConfigurationError, match=f"{name} is -2; accepted: 0"):
            ElasticGroup("S", "g", 1, **values).validate()
    assert ElasticGroup("S", "g", 1, None, -1).has_fixed_part_of(ElasticGroup("S", "g", 1, (), 0))


def test_the_partition_of_a_subject_is_that_of_the_servers_transform() -> None:
    group = ElasticGroup(
        "S", "g", 5, (PartitioningFilter("a.*.*", (2,)), PartitioningFilter("b.>"))
    )
    for src, subject in (("a.*.*", "a.x.y"), ("b.>", "b.x.y.z"), ("b.>", "b.1")):
        transform = next(
            each for each in transforms(group.partitioning_filters or (), 5) if each.src == src
        )
        stored = SubjectTransform(src.encode(), transform.dest.encode()).apply(subject.encode())
        assert stored == b"%d.%b" % (group.partition_of(subject) or 0, subject.encode())
    assert group.partition_of("a.1.key") == group.partition_of("a.2.key")
    assert group.partition_of("c.x") is None
    assert ElasticGroup("S", "g", 1).partition_of("anything.at.all") == 0
    with pytest.raises(InvalidSubjectError, match="subject"):
        group.partition_of("a.*.y")


def test_the_partition_of_a_static_groups_subject_needs_the_streams_transform() -> None:
    numbers = SubjectTransformConfig(
        src="*.*", dest="{{partition(4,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"
    )
    group = StaticGroup("S", "g", 4, ("foo.*",), ("m1", "m2"))
    number = group.partition_of("foo.1", numbers)
    assert number in range(4)
    assert group.partition_of(f"{number}.foo.1") == number
    assert group.partition_of("bar.1", numbers) is None  # none of its filters
    assert group.partition_of("foo.1") is None  # it has no number
    assert group.partition_of("7.foo.1") is None  # none of its partitions
    assert group.partition_of("2.foo.1", numbers) == 2  # three tokens: stored as it is
