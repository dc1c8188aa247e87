from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.api.streams import StreamConfig, StreamSource, SubjectTransformConfig
from headrace.groups import ElasticGroup, MemberMapping, PartitioningFilter, StaticGroup
from headrace.groups.reach import by_configuration, is_read, outside, stored_by
from headrace.transforms import SubjectTransform

SPLIT = SubjectTransformConfig(src="o.*", dest="a.{{split(1,-)}}")


def numbered(count: int, source: str = "o.*", rest: str = "o.{{wildcard(1)}}") -> Any:
    dest = f"{{{{partition({count},1)}}}}.{rest}"
    return SubjectTransformConfig(src=source, dest=dest)


def stream(*subjects: str, transform: Any = None, **values: Any) -> StreamConfig:
    return StreamConfig(name="S", subjects=subjects, subject_transform=transform, **values)


def static(count: int = 4, *filters: str, **values: Any) -> StaticGroup:
    return StaticGroup("S", "g", count, filters, **{"members": ("a",), **values})


def elastic(*filters: str) -> ElasticGroup:
    return ElasticGroup("S", "g", 4, tuple(PartitioningFilter(each) for each in filters) or None)


def kinds(group: Any, config: StreamConfig) -> list[str]:
    return [each.kind for each in by_configuration(group, config)]


@pytest.mark.parametrize(
    ("group", "config", "expected"),
    [
        (static(), stream("o.*", transform=numbered(4)), []),
        (static(), stream("o.*", transform=numbered(2)), []),
        (static(), stream("o.*", transform=numbered(5)), ["beyond"]),
        (static(4, "o.*"), stream("o.*", transform=numbered(4)), []),
        (static(4, "x.*"), stream("o.*", transform=numbered(4)), ["unmatched"]),
        (static(4, "x.*"), stream("o.*", transform=numbered(5)), ["unmatched"]),
        (static(), stream("o.*"), ["unnumbered"]),
        (static(), stream("*.o.*"), []),  # publishers number
        (static(), stream(">"), []),
        (static(), stream("3.o", "4.o"), []),
        (static(), stream("4.o"), ["unmatched"]),
        (static(), stream("o.*", "a.*", transform=numbered(4)), []),
        (static(), stream("o.>", transform=numbered(4, "p.*")), ["unnumbered"]),
        (static(), stream("o.*", sources=(StreamSource(name="A"),)), []),
        (
            static(1, "x.*", members=(), member_mappings=(MemberMapping("a", (0,)),)),
            stream("o.*", transform=numbered(1)),
            [],  # with mappings the filters mean nothing
        ),
        (elastic(), stream("o.*"), []),
        (elastic("o.*"), stream("o.>"), []),
        (elastic("o.*"), stream("o.*.*"), ["unmatched"]),
        (elastic("o.*", "p.*"), stream("o.*"), ["unmatched"]),
        (elastic("o.*"), stream("o.*", transform=numbered(4)), ["unmatched"]),
        (elastic("*.o.*"), stream("o.*", transform=numbered(4)), []),
        (elastic("o.*"), stream(mirror=StreamSource(name="A")), []),
        (elastic("a.*.*"), stream("o.*", transform=SPLIT), []),
        (elastic("S"), stream(), []),  # a stream without subjects takes its own name
    ],
)  # fmt: skip
def test_what_passes_a_group_by_is_known_from_the_streams_configuration(
    group: Any, config: StreamConfig, expected: list[str]
) -> None:
    assert kinds(group, config) == expected


def test_what_is_wrong_comes_with_the_command_that_mends_it() -> None:
    (found,) = by_configuration(static(4), stream("o.*", transform=numbered(10)))
    assert found.text == (
        "stream 'S' numbers 10 partitions and the group has 4: what comes in partitions 4 to 9 is handed to "
        "nobody"
    )
    assert found.mend == (
        "headrace group static create balanced S NAME 10 …    or: headrace stream edit S --transform "
        "'o.*:{{partition(4,1)}}.o.{{wildcard(1)}}'"
    )
    (found,) = by_configuration(static(4), stream("o.*"))
    assert found.mend.endswith("--transform 'o.*:{{Partition(4,1)}}.o.{{Wildcard(1)}}'")


TOKENS = st.lists(st.sampled_from(["a", "b-c", "0", "7"]), min_size=1, max_size=3).map(".".join)
PARTS = st.sampled_from(
    ["x", "{{partition(3)}}", "{{partition(9,1)}}", "{{wildcard(1)}}", "$1", "{{split(1,-)}}", "2"]
)


@given(TOKENS, st.lists(PARTS, min_size=1, max_size=3), st.sampled_from([(), ("x.>",), ("a",)]))
def test_what_is_called_certain_is_so_for_every_message(
    subject: str, parts: list[str], filters: tuple[str, ...]
) -> None:
    """Nothing that a group reads was said to be unreachable for it."""
    source, dest = ".".join(["*"] * len(subject.split("."))), ".".join(parts)
    transform = SubjectTransform(source.encode(), dest.encode())
    made = transform.apply(subject.encode())
    config = stream(source, transform=SubjectTransformConfig(src=source, dest=dest))
    group = static(4, *filters)
    if made is not None and is_read(group, made.decode()):
        assert set(kinds(group, config)) <= {"beyond"}
    stored = stored_by(config)
    assert stored is not None


def test_messages_in_no_partition_are_told_from_those_of_others() -> None:
    counts = {"0.o.1": 3, "4.o.1": 2, "o.1": 1, "x.1": 9, "7.x.1": 9}
    assert outside(static(4, "o.*"), counts) == {"4.o.1": 2, "o.1": 1}
    assert outside(static(4), counts) == {"4.o.1": 2, "o.1": 1, "x.1": 9, "7.x.1": 9}
    assert outside(elastic("o.*"), counts) == {"4.o.1": 2, "o.1": 1, "x.1": 9, "7.x.1": 9}
