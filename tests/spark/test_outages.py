"""A server that is away does not end a query."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import peers
from headrace.errors import ConnectFailedError
from headrace.spark.batches.driver import Driver
from headrace.spark.links.link import Link
from headrace.spark.options import parse_options
from waiting import until_here

from .conftest import Feed
from .queries import driver, latest_offset
from .virtual import Time


def test_a_server_that_is_away_for_a_minute_does_not_end_the_query(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    time_ = Time()

    def connect() -> Link:
        if 0 < time_.clock() < 60.0:
            raise ConnectFailedError("cannot reach a NATS server")
        return feed.connect()

    wanted = parse_options({"stream": feed.name, "servers": feed.url}, streaming=True)
    one = Driver(wanted, connect, time_.patience)
    start = one.initial_offset()
    assert one._call._control is not None
    one._call._control.link._sock.shutdown(2)
    assert latest_offset(one, start, None).seq == 10
    assert 60.0 < time_.clock() < 70.0
    one.close()


def test_a_server_that_stays_away_ends_the_query_when_its_time_is_up(feed: Feed) -> None:
    time_ = Time()
    links = [feed.connect()]

    def connect() -> Link:
        if not links:
            raise ConnectFailedError("cannot reach a NATS server")
        return links.pop()

    options = {"stream": feed.name, "servers": feed.url, "reconnectTimeout": "30s"}
    one = Driver(parse_options(options, streaming=True), connect, time_.patience)
    start = one.initial_offset()
    one.close()
    with pytest.raises(ConnectFailedError):
        latest_offset(one, start, None)
    assert time_.clock() == pytest.approx(30.0)


def test_a_query_that_never_reached_its_server_is_not_kept_waiting() -> None:
    time_ = Time()

    def connect() -> Link:
        raise ConnectFailedError("cannot reach a NATS server")

    one = Driver(parse_options({"stream": "S"}, streaming=True), connect, time_.patience)
    with pytest.raises(ConnectFailedError):
        one.initial_offset()
    assert time_.clock() < 1.0


@pytest.mark.peer
def test_a_killed_server_is_waited_for_until_it_is_back(
    nats_server: Callable[..., peers.ServerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    server = nats_server()
    feed = Feed(server.url)
    feed.publish_numbers(1, 10)
    one = driver(feed)
    start = one.initial_offset()
    server.kill()
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(latest_offset(one, start, None).seq))
    asking.start()
    until_here(lambda: "waiting up to" in caplog.text, "nothing was said")
    server.start_again()
    asking.join()
    assert found == [10]
    assert f"for stream '{feed.name}': cannot reach a NATS server" in caplog.text
    one.close()
    feed.link.close()


def test_a_broken_connection_of_the_driver_is_replaced(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, durable="d")
    start = one.initial_offset()
    assert one._call._control is not None
    one._call._control.link._sock.shutdown(2)
    assert latest_offset(one, start, None).seq == 10
    one.close()
