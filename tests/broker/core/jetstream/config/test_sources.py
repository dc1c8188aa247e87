from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.api.streams import StreamSource, SubjectTransformConfig
from headrace.broker.core.jetstream.config.sources import compile_route, index_name
from jetstream_world import World

X = {"name": "X"}


@pytest.mark.parametrize(
    ("config", "err_code"),
    [
        ({"mirror": X, "subjects": ["t"]}, 10034),
        ({"mirror": X, "sources": [X]}, 10031),
        ({"mirror": X, "first_seq": 7}, 10143),
        ({"mirror": X, "allow_msg_counter": True}, 10173),
        ({"mirror": X, "allow_atomic": True}, 10198),
        ({"mirror": {"name": "X.Y"}}, 10142),
        ({"mirror": {**X, "filter_subject": "a", "subject_transforms": [{"src": "b"}]}}, 10150),
        ({"mirror": {**X, "subject_transforms": [{"src": "b.."}]}}, 10151),
        ({"mirror": {**X, "subject_transforms": [{"src": "b.*"}, {"src": "b.x"}]}}, 10152),
        ({"mirror": {**X, "subject_transforms": [{"src": "b.*", "dest": "$2"}]}}, 10154),
        ({"mirror": {"name": "T"}}, 10052),
        ({"sources": [{"name": "X Y"}]}, 10141),
        ({"sources": [X, X]}, 10140),
        ({"sources": [{**X, "filter_subject": "a", "subject_transforms": [{"src": "b"}]}]}, 10144),
        ({"sources": [{**X, "subject_transforms": [{"src": "b.."}]}]}, 10145),
        ({"sources": [{**X, "filter_subject": "b.."}]}, 10145),
        ({"sources": [{**X, "subject_transforms": [{"src": "b.*", "dest": "$2"}]}]}, 10146),
        ({"sources": [{**X, "subject_transforms": [{"src": "b.*"}, {"src": "b.x"}]}]}, 10147),
        ({"sources": [{"name": "T"}]}, 10052),
        ({"sources": [X], "allow_msg_schedules": True}, 10187),
        ({"sources": [{**X, "external": {"api": "$JS.API"}}]}, 10021),
        ({"sources": [{**X, "external": {"api": "hub.*.API"}}]}, 10052),
        ({"sources": [{**X, "external": {"api": "A", "deliver": "d.*"}}]}, 10024),
        ({"sources": [{**X, "domain": "hub"}]}, 10025),
        ({"sources": [{**X, "consumer": {"name": "C"}}]}, 10215),
        ({"mirror": {**X, "consumer": {"name": "C"}}}, 10213),
        ({"sources": [{**X, "opt_start_time": "yesterday"}]}, 10025),
        ({"sources": [{"name": "SMALL"}], "max_msg_size": 50}, 10046),
        ({"mirror": {"name": "SMALL"}, "max_msg_size": 50}, 10030),
    ],
)
def test_what_can_not_be_copied_is_refused(config: dict[str, Any], err_code: int) -> None:
    client = World().client()
    client.stream("SMALL", max_msg_size=100)
    answer = client.api("STREAM.CREATE.T", {"name": "T", **config})
    assert answer["error"]["err_code"] == err_code
    assert client.api("STREAM.NAMES")["streams"] == ["SMALL"]


def sources(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"S{number}", **more} for number in range(count)]


RULES = [{"src": f"a.{number}"} for number in range(501)]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (sources(1001), "too many sources: 1001; accepted are 1000"),
        (
            sources(2, subject_transforms=RULES),
            "too many subject transforms of sources: 1002; accepted are 400",
        ),
        (
            [
                {"name": "MANY"},
                *(
                    {"name": "X", "external": {"api": f"a{n}", "deliver": f"d{n}"}}
                    for n in range(500)
                ),
            ],
            "too many subjects to compare with the prefixes of external sources",
        ),
    ],
    ids=["sources", "transforms", "prefixes"],
)
def test_more_than_one_turn_of_the_loop_can_look_at_is_refused(
    config: list[dict[str, Any]], said: str
) -> None:
    client = World().client()
    client.stream("MANY", subjects=[f"many.{number}" for number in range(50)])
    answer = client.api("STREAM.CREATE.T", {"name": "T", "sources": config})
    assert (answer["error"]["err_code"], answer["error"]["description"]) == (10052, said)
    assert client.api("STREAM.CREATE.T", {"name": "T", "sources": sources(1000)})["did_create"]
    more = {"name": "T", "sources": sources(1001)}
    assert client.api("STREAM.UPDATE.T", more)["error"]["err_code"] == 10052
    assert len(client.api("STREAM.INFO.T")["config"]["sources"]) == 1000


def test_a_page_of_streams_with_many_sources_ends_sooner() -> None:
    client = World().client()
    for name in "ABCDE":
        client.api(f"STREAM.CREATE.{name}", {"name": name, "sources": sources(900)})
    client.stream("PLAIN")
    names: list[str] = []
    while len(names) < 6:
        page = client.api("STREAM.LIST", {"offset": len(names)})
        names += [each["config"]["name"] for each in page["streams"]]
        assert page["total"] == 6
        assert len(page["streams"]) == 2
        assert page["limit"] in (2, 256)
    assert names == ["A", "B", "C", "D", "E", "PLAIN"]


def test_a_stream_that_is_reached_by_many_ways_is_looked_at_once() -> None:
    """Forty streams, each of which copies two that copy the two before: 2^20 ways."""
    client = World().client()
    for level in range(20):
        for side in "AB":
            before = [{"name": f"{other}{level - 1}"} for other in "AB"] if level else []
            subjects = [f"{side}{level}"]
            config = {"name": f"{side}{level}", "subjects": subjects, "sources": before}
            assert "error" not in client.api(f"STREAM.CREATE.{side}{level}", config)


def test_a_cycle_is_found_behind_other_streams() -> None:
    client = World().client()
    client.api("STREAM.CREATE.A", {"name": "A", "sources": [{"name": "C"}]})
    client.api("STREAM.CREATE.B", {"name": "B", "mirror": {"name": "A"}})
    answer = client.api("STREAM.CREATE.C", {"name": "C", "sources": [{"name": "B"}]})
    assert answer["error"]["description"] == "detected cycle"


def test_a_source_is_named_by_what_it_does() -> None:
    rules = (
        SubjectTransformConfig(src="a.*", dest="{{ wildcard( 1 ) }}"),
        SubjectTransformConfig(src="b"),
    )
    assert index_name(StreamSource(name="S")) == "S > >"
    assert index_name(StreamSource(name="S", filter_subject="a")) == "S a >"
    source = StreamSource(name="S", subject_transforms=rules)
    assert index_name(source) == "S a.*\fb {{wildcard(1)}}\f>"


def test_a_route_filters_and_renames() -> None:
    rules = (SubjectTransformConfig(src="a.*", dest="x.$1"), SubjectTransformConfig(src="b"))
    source = StreamSource(name="S", subject_transforms=rules)
    route = compile_route(source, random.Random(1))
    assert route.filter is not None
    assert route.rename is not None
    assert [route.filter.matches(subject) for subject in (b"a.1", b"b", b"c")] == [
        True,
        True,
        False,
    ]
    assert [route.rename(subject) for subject in (b"a.1", b"b")] == [b"x.1", b"b"]
    assert compile_route(StreamSource(name="S", filter_subject=">"), random.Random(1)) == (
        None,
        None,
    )
