from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import peers
from certificates import self_signed
from headrace import sync
from headrace.errors import ConfigurationError, ConnectFailedError
from headrace.groups import PartitioningFilter
from headrace.pipeline.checking import backlog
from headrace.pipeline.checking.sources_and_sinks import check_options
from headrace.pipeline.checkpoints.checkpoint import Start
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared, Sink
from headrace.pipeline.resets import reset
from headrace.pipeline.triggers import parse_trigger
from waiting import until_here

from ..conftest import ORDERS

ALL_SEEN = "not all of the group's messages are seen: nats-server copies them in its own time"


@pytest.fixture
def url(either_url: str) -> str:
    return either_url


@pytest.fixture
def declared(pipeline_file: Path) -> Declared:
    return read(pipeline_file)


def with_trigger(declared: Declared, **trigger: str) -> Sink:
    return replace(declared.sinks["out"], trigger=parse_trigger({"lag": 5, **trigger}))


def test_a_query_that_never_ran_has_everything_before_it(declared: Declared) -> None:
    assert backlog.of_sink(declared, with_trigger(declared)) == 10


def test_markers_of_the_pipeline_s_own_sinks_are_no_backlog(
    write: Callable[..., Path], url: str, stream: str
) -> None:
    sink = (
        f'[sinks.copy]\nfrom = "orders"\nformat = "jetstream"\noptions = {{ stream = "{stream}", '
        f'servers = "{url}", subject = "{stream}.copy", delivery = "exactlyOnce", sinkId = "copy", '
        f'markerPrefix = "{stream}.marks" }}\n'
    )
    text = ORDERS.replace('"ORDERS"', f'"{stream}", servers = "{url}"') + sink
    with sync.connect(url) as connection:
        for number in range(3):
            connection.jetstream().publish(f"{stream}.marks.copy.{number}", b"")
    declared = read(write(text))
    assert backlog.of_sink(declared, declared.sinks["out"]) == 10
    only = text.replace('"out" }', '"out" }').replace(
        "servers", f'subjects = "{stream}.*", servers', 1
    )
    declared = read(write(only))
    assert backlog.of_sink(declared, declared.sinks["out"]) == 10
    every = text.replace("servers", "includeMarkers = true, servers", 1)
    declared = read(write(every))
    assert backlog.of_sink(declared, declared.sinks["out"]) == 13


def test_of_a_consumer_waits_what_it_did_not_acknowledge(
    declared: Declared, url: str, stream: str
) -> None:
    sink = with_trigger(declared, stream=stream, consumer="billing")
    with pytest.raises(ConfigurationError, match="has no consumer 'billing'"):
        backlog.of_sink(declared, sink)
    with sync.connect(url) as connection:
        consumer = connection.jetstream().create_consumer(stream, durable_name="billing")
        for message in list(consumer.fetch(4))[:3]:
            message.ack_sync()
    assert backlog.of_sink(declared, sink) == 7


def test_of_a_group_waits_what_its_members_did_not_handle(
    declared: Declared, url: str, stream: str
) -> None:
    with sync.connect(url) as connection:
        filters = [PartitioningFilter(f"{stream}.*", (1,))]
        sync.groups.elastic.create(
            connection.jetstream(), stream, "billing", 4, partitioning_filters=filters
        )
    sink = with_trigger(declared, stream=stream, group="billing")
    until_here(lambda: backlog.of_sink(declared, sink) == 10, ALL_SEEN)
    other = with_trigger(declared, stream=stream, group="shipping")
    with pytest.raises(ConfigurationError, match="shipping"):
        backlog.of_sink(declared, other)


@pytest.mark.peer
def test_a_group_is_asked_for_over_the_connection_of_the_source(
    pipeline_file: Path,
    url: str,
    stream: str,
    nats_server: Callable[..., peers.ServerProcess],
    tmp_path: Path,
) -> None:
    cert, key = self_signed(tmp_path, name="nats", alternatives="DNS:broker.example")
    server = nats_server(
        config=f"""
        tls {{ cert_file: "{cert}", key_file: "{key}" }}
        authorization {{ user: "me", password: "right" }}
        """
    )
    login = f'user = "me", password = "right", tlsCa = "{cert}", tlsHostname = "broker.example"'
    text = pipeline_file.read_text().replace(f'"{url}"', f'"{server.url}", {login}')
    context = ssl.create_default_context(cafile=cert)
    given: Any = {
        "user": "me",
        "password": "right",
        "tls": context,
        "tls_hostname": "broker.example",
    }
    with sync.connect(server.url, **given) as connection:
        js = connection.jetstream()
        js.create_stream(name=stream, subjects=[f"{stream}.*"])
        filters = [PartitioningFilter(f"{stream}.*", (1,))]
        sync.groups.elastic.create(js, stream, "billing", 4, partitioning_filters=filters)
        for number in range(3):
            js.publish(f"{stream}.{number}", b"")
    pipeline_file.write_text(text)
    declared = read(pipeline_file)
    sink = with_trigger(declared, stream=stream, group="billing")
    until_here(lambda: backlog.of_sink(declared, sink) == 3, "the messages are not seen")


def test_a_query_in_a_group_is_as_far_as_its_group(
    pipeline_file: Path, url: str, stream: str
) -> None:
    with sync.connect(url) as connection:
        filters = [PartitioningFilter(f"{stream}.*", (1,))]
        sync.groups.elastic.create(
            connection.jetstream(), stream, "billing", 4, partitioning_filters=filters
        )
    text = pipeline_file.read_text().replace('durable = "shown"', 'group = "billing"')
    pipeline_file.write_text(text)
    declared = read(pipeline_file)
    until_here(lambda: backlog.of_sink(declared, with_trigger(declared)) == 10, ALL_SEEN)
    with pytest.raises(ConfigurationError, match="goes on where its group"):
        reset(declared, [declared.sinks["out"]], Start("earliest"))
    (problem,) = check_options(declared)
    assert "is read by out, seen" in problem.text


def test_a_query_that_takes_a_surplus_waits_for_what_its_workers_wait_for(
    pipeline_file: Path, url: str, stream: str
) -> None:
    options = 'consumer = "billing", minPending = 3'
    pipeline_file.write_text(pipeline_file.read_text().replace('durable = "shown"', options))
    declared = read(pipeline_file)
    with pytest.raises(ConfigurationError, match="has no consumer 'billing', which a trigger or a"):
        backlog.of_sink(declared, with_trigger(declared))
    with sync.connect(url) as connection:
        consumer = connection.jetstream().create_consumer(
            stream, durable_name="billing", priority_policy="overflow", priority_groups=["all"]
        )
        for message in list(consumer.fetch(4, group="all"))[:3]:
            message.ack_sync()
    assert backlog.of_sink(declared, with_trigger(declared)) == 7
    with pytest.raises(ConfigurationError, match="reads what a consumer hands out"):
        reset(declared, [declared.sinks["out"]], Start("earliest"))
    (problem,) = check_options(declared)
    assert "takes the surplus of a consumer" in problem.text
    assert "is read by out, seen" in problem.text


def test_a_server_that_is_away_is_an_error_of_its_own(
    pipeline_file: Path, write: Callable[..., Path], url: str, free_port: int
) -> None:
    away = pipeline_file.read_text().replace(url, f"nats://127.0.0.1:{free_port}")
    declared = read(write(away))
    with pytest.raises((ConfigurationError, ConnectFailedError), match="Connection refused"):
        backlog.of_sink(declared, declared.sinks["out"])
