"""Documents become JSON and come back unchanged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.api import consumers, streams
from headrace.api.base import DocumentError, decode, encode, to_wire

seconds = st.integers(0, 10**7).map(lambda ms: ms / 1000)
names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)

stream_configs = st.builds(
    streams.StreamConfig,
    name=names,
    subjects=st.lists(names, max_size=3).map(tuple),
    retention=st.sampled_from(["limits", "interest", "workqueue"]),
    max_age=seconds,
    max_msgs=st.integers(-1, 10**12),
    duplicate_window=seconds,
    subject_transform=st.none() | st.builds(streams.SubjectTransformConfig, src=names, dest=names),
    sources=st.lists(
        st.builds(
            streams.StreamSource,
            name=names,
            subject_transforms=st.lists(
                st.builds(streams.SubjectTransformConfig, src=names, dest=names), max_size=2
            ).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    consumer_limits=st.builds(streams.ConsumerLimits, inactive_threshold=seconds),
    metadata=st.dictionaries(names, names, max_size=3),
)
consumer_configs = st.builds(
    consumers.ConsumerConfig,
    durable_name=names,
    ack_policy=st.sampled_from(["none", "all", "explicit"]),
    ack_wait=seconds,
    backoff=st.lists(seconds, max_size=3).map(tuple),
    filter_subjects=st.lists(names, max_size=3).map(tuple),
    priority_groups=st.lists(names, max_size=2).map(tuple),
)


@given(stream_configs)
def test_a_stream_configuration_survives_the_wire(config: streams.StreamConfig) -> None:
    assert decode(encode(config), streams.StreamConfig, strict=True) == config


@given(consumer_configs)
def test_a_consumer_configuration_survives_the_wire(config: consumers.ConsumerConfig) -> None:
    assert decode(encode(config), consumers.ConsumerConfig, strict=True) == config


def test_durations_are_nanoseconds_on_the_wire_and_seconds_in_python() -> None:
    config = consumers.ConsumerConfig(ack_wait=1.5, backoff=(0.25, 2.0))
    wire = json.loads(encode(config))
    assert wire["ack_wait"] == 1_500_000_000
    assert wire["backoff"] == [250_000_000, 2_000_000_000]


def test_fields_a_server_always_prints_are_there_and_other_defaults_are_not() -> None:
    wire = to_wire(streams.StreamConfig(name="S"))
    assert set(wire) == set(streams.StreamConfig.always)
    assert wire["consumer_limits"] == {}


def test_unknown_fields_are_ignored_when_lenient_and_named_when_strict() -> None:
    data = b'{"name": "S", "sources": [{"name": "T", "later": 1}]}'
    assert decode(data, streams.StreamConfig).sources[0].name == "T"
    with pytest.raises(DocumentError, match='json: unknown field "later"'):
        decode(data, streams.StreamConfig, strict=True)


def test_null_means_absent() -> None:
    data = b'{"name": "S", "subjects": null, "subject_transform": null, "max_age": null}'
    assert decode(data, streams.StreamConfig, strict=True) == streams.StreamConfig(name="S")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "truncated"),
        (b"[]", "array"),
        (b"[" * 500_000, "exceeded max depth"),  # Python 3.14 goes as deep as the stack allows
        (b'{"name": 1}', "name"),
        (b'{"max_age": "1h"}', "max_age"),
        (b'{"max_age": true}', "max_age"),
        (b'{"subject_transform": 4}', "subject_transform"),
        (b'{"retention": "weird"}', "weird"),
        (b'{"subjects": "a"}', "subjects"),
    ],
)
def test_a_wrong_document_is_refused_with_a_word_about_where(data: bytes, words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        decode(data, streams.StreamConfig, strict=True)


def test_what_a_cluster_says_of_itself_is_read() -> None:
    document = {
        "config": {"name": "S", "num_replicas": 3},
        "cluster": {
            "name": "C",
            "raft_group": "S-R3F-abc",
            "leader": "a",
            "replicas": [
                {"name": "b", "current": True, "active": 1_500_000_000},
                {"name": "c", "current": False, "offline": True, "active": 0, "lag": 7},
            ],
        },
        "alternates": [{"name": "M", "cluster": "near"}, {"name": "S", "cluster": "C"}],
    }
    info = decode(json.dumps(document), streams.StreamInfo)
    assert info.cluster is not None
    assert [(peer.name, peer.active, peer.lag) for peer in info.cluster.replicas] == [
        ("b", 1.5, 0),
        ("c", 0.0, 7),
    ]
    assert [alternate.name for alternate in info.alternates] == ["M", "S"]
