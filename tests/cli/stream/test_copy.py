"""``headrace stream copy``: from either server to a broker of ours, and on from where it stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import peers
from distances import FAR_S
from headrace import SubjectTransformConfig, sync
from headrace.cli.stream.copy import COPIED
from headrace.groups import PartitioningFilter
from headrace.sync.groups import elastic
from headrace.testing import Link
from waiting import until_here

Run = Callable[..., Any]


def fill(js: sync.JetStream) -> None:
    js.create_stream(name="ORDERS", subjects=["ORDERS.>"])
    for number in range(5):
        js.publish(f"ORDERS.{number}", b"%d" % number)
    js.create_consumer("ORDERS", durable_name="billing").fetch(2)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[tuple[str, sync.JetStream]]:
    """Another server, to copy to."""
    server = peers.start_headrace(tmp_path / "other", flags=["--sync", "os"])
    with sync.connect(server.url) as connection:
        yield server.url, connection.jetstream()
    server.stop()


def test_a_copy_goes_on_where_it_stopped(
    at_server: Run, js: sync.JetStream, other: tuple[str, sync.JetStream]
) -> None:
    url, there = other
    fill(js)
    copy = ("stream", "copy", "ORDERS", "ORDERS", "--to-server", url)
    assert at_server(*copy).lines == [
        "copied stream ORDERS to ORDERS",
        "copied 0 later messages of ORDERS to ORDERS",
    ]
    assert there.consumer("ORDERS", "billing").info().delivered.stream_seq == 2
    for number in range(5, 8):
        js.publish("ORDERS.later", b"%d" % number, headers={"N": "x"}, msg_id=str(number))
    js.stream("ORDERS").delete_message(7)
    for count in (2, 0):
        lines = at_server(*copy).lines
        assert lines == [f"copied {count} later messages of ORDERS to ORDERS"]
    stream = there.stream("ORDERS")
    found = [stream.get_message(number) for number in range(1, 8)]
    assert [message.payload for message in found] == [b"0", b"1", b"2", b"3", b"4", b"5", b"7"]
    assert [message.headers.get(COPIED) for message in found] == [None] * 5 + ["6", "8"]
    assert found[0].timestamp_ns == js.stream("ORDERS").get_message(1).timestamp_ns


def test_what_comes_while_a_far_server_is_copied_is_copied_once_and_in_order(
    at_server: Run,
    js: sync.JetStream,
    either_server: peers.ServerProcess,
    other: tuple[str, sync.JetStream],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, there = other
    fill(js)
    over = threading.Event()
    published = 5

    def publish() -> None:
        nonlocal published
        while not over.is_set() and published < 1000:
            js.publish("ORDERS.more", b"%d" % published)
            published += 1

    publisher = threading.Thread(target=publish)
    with Link(either_server.url, FAR_S) as origin, Link(url, FAR_S) as target:
        monkeypatch.setenv("NATS_URL", origin.url)
        copy = ("stream", "copy", "ORDERS", "ORDERS", "--to-server", target.url)
        publisher.start()
        try:
            assert [at_server(*copy).status for _ in range(2)] == [0, 0]
        finally:
            over.set()
            publisher.join()
        assert at_server(*copy).status == 0
    stream = there.stream("ORDERS")
    assert stream.info().state.messages == published
    copied = [stream.get_message(number + 1).payload for number in range(published)]
    assert copied == [b"%d" % number for number in range(published)]


def test_who_else_publishes_there_is_noticed(
    at_server: Run, js: sync.JetStream, other: tuple[str, sync.JetStream]
) -> None:
    url, there = other
    fill(js)
    copy = ("stream", "copy", "ORDERS", "MOVED", "--to-server", url)
    assert at_server(*copy).status == 0
    there.publish("ORDERS.somebody", b"else")
    js.publish("ORDERS.later", b"1")
    done = at_server(*copy)
    assert done.status == 1
    assert "no copy of 'ORDERS': their messages 6 differ" in done.err
    assert there.stream("MOVED").info().state.messages == 6


def test_a_copy_on_the_same_server_listens_on_other_subjects(
    at_server: Run, js: sync.JetStream, either_server: peers.ServerProcess
) -> None:
    fill(js)
    here = ("--to-server", either_server.url)
    for words, subjects in (
        (("KEPT", "--subjects", "kept.>"), ("kept.>",)),
        (("NAMED",), ("NAMED",)),
        (("THERE", "--subjects", "there", *here), ("there",)),
    ):
        told = at_server("stream", "copy", "ORDERS", *words, "--json").told
        assert told == {"stream": words[0], "created": True, "copied": 0}
        copy = js.stream(words[0])
        assert copy.info().config.subjects == subjects
        assert copy.get_message(5).subject == "ORDERS.4"
        assert copy.consumer("billing").info().delivered.stream_seq == 2
    js.publish("kept.x", b"new")
    js.publish("ORDERS.x", b"new")
    assert js.stream("KEPT").info().state.messages == 6
    assert js.stream("ORDERS").info().state.messages == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ORDERS",), "cannot be copied to itself"),
        (("OTHER",), "there is a stream OTHER"),
        (("NEW", "--subjects", "ORDERS.a"), "subject 'ORDERS.a' is of stream ORDERS"),
        (("NEW", "--follow"), "headrace stream create NEW --mirror ORDERS"),
        (("NEW", "--after", "3"), "is a mirror"),
    ],
)
def test_what_is_refused_on_the_same_server_is_refused_before_anything_moves(
    at_server: Run,
    js: sync.JetStream,
    either_server: peers.ServerProcess,
    words: tuple[str, ...],
    said: str,
) -> None:
    fill(js)
    js.create_stream(name="OTHER", subjects=["other"])
    for place in ((), ("--to-server", either_server.url)):
        done = at_server("stream", "copy", "ORDERS", *words, *place)
        assert done.status in (1, 2)
        assert said in done.err
    assert sorted(js.stream_names()) == ["ORDERS", "OTHER"]


def test_nothing_tells_where_to_go_on(
    at_server: Run, js: sync.JetStream, other: tuple[str, sync.JetStream]
) -> None:
    url, there = other
    fill(js)
    copy = ("stream", "copy", "ORDERS", "ORDERS", "--to-server", url)
    assert at_server(*copy).status == 0
    there.stream("ORDERS").purge()
    assert "give --after SEQUENCE" in at_server(*copy).err
    told = at_server(*copy, "--after", "3", "--json").told
    assert told == {"stream": "ORDERS", "created": False, "copied": 2}


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by the leader"])
def test_a_work_queue_is_copied_and_what_comes_later_too(
    at_server: Run, js: sync.JetStream, other: tuple[str, sync.JetStream], direct: bool
) -> None:
    url, there = other
    js.create_stream(name="JOBS", subjects=["jobs.>"], retention="workqueue", allow_direct=direct)
    for number in range(5):
        js.publish(f"jobs.{number}", b"%d" % number)
    for message in js.create_consumer("JOBS", durable_name="worker").fetch(2):
        message.ack_sync()
    copy = ("stream", "copy", "JOBS", "JOBS", "--to-server", url)
    assert at_server(*copy).lines[-1] == "copied 0 later messages of JOBS to JOBS"
    for number in range(5, 8):
        js.publish("jobs.later", b"%d" % number)
    for count in (3, 0):
        assert at_server(*copy).lines == [f"copied {count} later messages of JOBS to JOBS"]
    assert js.stream("JOBS").info().state.messages == 6  # nothing was taken from who handles them
    found = there.consumer("JOBS", "worker").fetch(10, max_wait=5)
    assert [message.payload for message in found] == [b"2", b"3", b"4", b"5", b"6", b"7"]


def test_a_groups_queue_is_not_copied_but_moved_with_its_stream(
    at_server: Run, js: sync.JetStream, other: tuple[str, sync.JetStream], tmp_path: Path
) -> None:
    url, there = other
    js.create_stream(name="S", subjects=["s.*"])
    by_key = [PartitioningFilter("s.*", (1,))]
    elastic.create(js, "S", "g", 2, partitioning_filters=by_key, members=["a"])
    handled: list[bytes] = []

    def handle(message: Any) -> Any:
        handled.append(message.payload)
        return message.ack_sync()

    with elastic.join(js, "S", "g", "a", handle):
        for number in range(10):
            js.publish(f"s.{number}", b"%d" % number)
        until_here(lambda: len(handled) == 10)
    js.publish("s.1", b"waits")
    until_here(lambda: js.stream("S-g").info().state.messages == 1)
    done = at_server("stream", "copy", "S-g", "S-g", "--to-server", url)
    assert done.status == 1
    assert "is the work queue of group 'g' of stream 'S'" in done.err
    assert list(there.stream_names()) == []
    # … and the way that it says.
    assert at_server("stream", "backup", "--all", str(tmp_path / "all")).status == 0
    assert (
        at_server("stream", "restore", "--all", str(tmp_path / "all"), "--server", url).status == 0
    )
    handled.clear()
    with elastic.join(there, "S", "g", "a", handle):
        there.publish("s.1", b"later")
        until_here(lambda: len(handled) >= 2)
    assert handled == [b"waits", b"later"]


def test_a_stream_that_was_made_again_while_it_is_followed_is_not_taken_for_the_one_before(
    at_server: Run,
    js: sync.JetStream,
    other: tuple[str, sync.JetStream],
    either_server: peers.ServerProcess,
) -> None:
    url, there = other
    fill(js)
    command = [sys.executable, "-m", "headrace", "stream", "copy", "ORDERS", "ORDERS", "--follow"]
    following = subprocess.Popen(
        [*command, "--to-server", url, "--server", either_server.url],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until_here(lambda: "ORDERS" in list(there.stream_names()), within=30)
        js.publish("ORDERS.later", b"5")
        until_here(lambda: there.stream("ORDERS").info().state.messages == 6, within=30)
        js.delete_stream("ORDERS")
        js.create_stream(name="ORDERS", subjects=["ORDERS.>"])
        for number in range(10, 20):
            js.publish("ORDERS.other", b"%d" % number)
        told = following.communicate(timeout=60)[1]
    finally:
        following.kill()
    assert following.returncode == 1
    noticed = ("lost its end, was put back or made again", "stream not found", "there is no stream")
    assert any(words in told for words in noticed), told  # the last two: before it was there again
    assert there.stream("ORDERS").info().state.messages == 6
    copy = ("stream", "copy", "ORDERS", "ORDERS", "--to-server", url)
    assert "give --after 0" in at_server(*copy).err
    assert at_server(*copy, "--after", "0").lines == [
        "copied 10 later messages of ORDERS to ORDERS"
    ]


@pytest.mark.parametrize("dest", ["new.{{wildcard(1)}}", "ORDERS.new.{{wildcard(1)}}"])
def test_what_cannot_be_published_again_as_it_is_stored_is_refused_before_anything_moves(
    at_server: Run, js: sync.JetStream, other: tuple[str, sync.JetStream], dest: str
) -> None:
    url, there = other
    made = SubjectTransformConfig(src="ORDERS.*", dest=dest)
    js.create_stream(name="ORDERS", subjects=["ORDERS.>"], subject_transform=made)
    js.publish("ORDERS.1", b"1")
    copy = ("stream", "copy", "ORDERS", "ORDERS", "--to-server", url)
    done = at_server(*copy)
    if dest.startswith("new"):
        assert done.status == 1
        assert "`headrace stream backup`" in done.err
        assert list(there.stream_names()) == []
    else:
        assert done.status == 0
        js.publish("ORDERS.2", b"2")
        assert at_server(*copy).lines == ["copied 1 later messages of ORDERS to ORDERS"]
        assert there.stream("ORDERS").get_message(2).subject == "ORDERS.new.2"
