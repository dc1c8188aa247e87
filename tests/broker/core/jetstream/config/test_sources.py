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
