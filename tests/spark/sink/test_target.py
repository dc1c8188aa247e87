"""What a stream must allow is said before the first row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import peers
from headrace.errors import ConfigurationError, ConnectFailedError
from headrace.spark.sink.markers import PlanId
from headrace.spark.sink.target import check_before, look
from headrace.spark.sink.writer import make_job

from ..conftest import Feed
from .sinks import ATOMIC, columns, exactly, job, payloads, write

Make = Callable[..., Feed]


def check(feed: Feed, **options: str) -> None:
    wanted = job(feed, columns(data="binary", id="int"), **options)
    check_before(wanted.options, wanted.layout, streaming=True)


def test_a_stream_that_is_missing_is_named_with_those_there_are(feed: Feed) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"no stream '{feed.name}X'; there are: "
    ) as error:
        check(feed, stream=f"{feed.name}X")
    assert str(error.value).startswith("jetstream sink: ")


@pytest.mark.parametrize(
    ("config", "options", "complaint"),
    [
        ({}, {"subject": "elsewhere.{id}"}, r"has no subject 'elsewhere\.\*'; it has "),
        ({"no_ack": True}, {}, "confirms nothing"),
        ({"sealed": True}, {}, "is sealed"),
        ({"allow_msg_counter": True}, {}, "counts"),
    ],
)
def test_a_stream_that_takes_no_rows_is_refused(
    make_feed: Make, config: dict[str, Any], options: dict[str, str], complaint: str
) -> None:
    feed = make_feed()
    if config:
        answer = feed.call(
            f"STREAM.UPDATE.{feed.name}",
            {"name": feed.name, "subjects": [f"{feed.name}.>"], **config},
        )
        if "error" in answer:
            feed.call(f"STREAM.DELETE.{feed.name}")
            feed.create(**config)
    with pytest.raises(ConfigurationError, match=complaint):
        check(feed, **options)


def test_lifetimes_must_be_allowed(feed: Feed) -> None:
    wanted = job(feed, columns(data="binary", ttl="int"))
    with pytest.raises(ConfigurationError, match="allow_msg_ttl"):
        check_before(wanted.options, wanted.layout, streaming=False)


@pytest.mark.parametrize(
    ("config", "options", "complaint"),
    [
        ({}, {}, "does not allow them; set allow_atomic"),
        (
            ATOMIC,
            {"markerPrefix": "_sink.X"},
            r"keeps its markers on '_sink\.X\.s\.\*', which stream",
        ),
        ({**ATOMIC, "max_msg_size": 500}, {}, "takes 500 bytes a message"),
        ({**ATOMIC, "retention": "workqueue"}, {}, "has retention 'workqueue'"),
        (
            {
                **ATOMIC,
                "discard": "new",
                "discard_new_per_subject": True,
                "max_msgs_per_subject": 5,
            },
            {},
            "refuses new messages of a subject that is full",
        ),
    ],
)
def test_what_exactly_once_needs(
    make_feed: Make, config: dict[str, Any], options: dict[str, str], complaint: str
) -> None:
    wanted = exactly(make_feed(**config), **options)
    with pytest.raises(ConfigurationError, match=complaint):
        check_before(wanted.options, wanted.layout, streaming=True)


def test_a_transform_must_leave_the_markers_alone(make_feed: Make) -> None:
    feed = make_feed(**ATOMIC)
    feed.call(
        f"STREAM.UPDATE.{feed.name}",
        {
            "name": feed.name,
            "subjects": [f"{feed.name}.>"],
            "subject_transform": {"src": f"{feed.name}.>", "dest": "t.>"},
            **ATOMIC,
        },
    )
    wanted = exactly(feed)
    with pytest.raises(ConfigurationError, match="would rename the markers"):
        check_before(wanted.options, wanted.layout, streaming=True)


def test_a_server_that_is_away_fails_a_write_and_is_left_to_the_tasks_of_a_query() -> None:
    peers.package("pyspark")
    from pyspark.sql.types import BinaryType, StructField, StructType

    schema = StructType([StructField("data", BinaryType())])
    raw = {"servers": "nats://127.0.0.1:1", "stream": "S", "subject": "S.a"}
    with pytest.raises(ConnectFailedError, match="cannot reach a NATS server"):
        make_job(raw, schema, overwrite=False, streaming=False)
    one = make_job(raw, schema, overwrite=False, streaming=True)
    assert isinstance(one.plan, PlanId)
    with pytest.raises(ConnectFailedError):
        write(one, payloads(1, 1), batch=0)  # a query that never wrote is not kept waiting
    with pytest.raises(ConfigurationError, match="cannot be overwritten"):
        make_job(raw, schema, overwrite=True, streaming=True)


@pytest.mark.peer
def test_what_may_not_be_published_is_said_by_its_name(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    conf = """
authorization {
  users: [
    {user: boss, password: boss}
    {user: poor, password: poor, permissions: {publish: ["$JS.API.>"], subscribe: [">"]}}
  ]
}
"""
    server = nats_server(config=conf)
    boss = server.url.replace("//", "//boss:boss@")
    feed = Feed(boss)
    poor = job(feed, servers=server.url, user="poor", password="poor")
    assert look(poor.options.connection, poor.options, poor.layout).limits.subjects
    with pytest.raises(Exception, match=r"(?i)permissions violation for publish") as error:
        write(poor, payloads(1, 10))
    assert f"{feed.name}.out" in str(error.value)
    feed.close()
