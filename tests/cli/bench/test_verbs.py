"""Benchmarks from the command line, small ones, against both servers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import sync
from headrace.cli.bench.measure import percentile, shares, timed
from headrace.cli.bench.publish import _into_nowhere
from headrace.cli.shared.errors import Failure

Run = Callable[..., Any]


def test_a_stream_is_filled_and_emptied(at_server: Run, js: sync.JetStream) -> None:
    words = ("--msgs", "3000", "--size", "64", "--clients", "2", "--json")
    (figure,) = at_server("bench", "pub", "bench.a", *words).told
    assert (figure["what"], figure["messages"]) == ("publish", 3000)
    assert figure["bytes_per_second"] > figure["messages_per_second"] > 0
    done = at_server("bench", "pub", "bench.a", "--jetstream", "--msgs", "1001")
    assert "created stream benchstream; `headrace stream rm" in done.err
    assert done.lines[0].split() == ["WHAT", "MESSAGES", "TIME", "MSG/S", "BYTES/S"]
    stream = js.stream("benchstream")
    assert stream.info().state.messages == 1001
    (figure,) = at_server("bench", "fetch", "--batch", "100", "--clients", "2", "--json").told
    assert figure["messages"] == 1001
    (figure,) = at_server("bench", "consume", "--msgs", "500", "--acks", "none", "--json").told
    assert figure["messages"] == 500
    assert list(stream.consumer_names()) == []
    assert at_server("bench", "pub", "bench.a", "-J", "--purge", "--msgs", "10").status == 0
    assert stream.info().state.messages == 10


@pytest.mark.parametrize("how", [("--fast",), ("--atomic", "7")])
def test_a_stream_is_filled_in_batches(
    at_server: Run, js: sync.JetStream, how: tuple[str, ...]
) -> None:
    words = ("bench", "pub", "bench.a", "-J", *how, "--msgs", "50", "--clients", "2", "--json")
    done = at_server(*words)
    assert done.status == 0, done
    (figure,) = json.loads(done.out)
    assert f"benchstream, {how[0][2:]} batches" in figure["what"]
    assert js.stream("benchstream").info().state.messages == 50
    refused = at_server("bench", "pub", "bench.a", *how)
    assert (refused.status, "with --jetstream" in refused.err) == (1, True)
    js.stream("benchstream").delete()
    js.create_stream(name="benchstream", subjects=["bench.*"])
    refused = at_server(*words)
    assert (refused.status > 0, "Traceback" not in refused.err) == (True, True)


def test_what_cannot_be_measured_is_said(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="A", subjects=["a"])
    done = at_server("bench", "fetch", "--stream", "A")
    assert (done.status, "stream A is empty" in done.err) == (1, True)
    done = at_server("bench", "pub", "b", "--jetstream", "--stream", "A")
    assert (done.status, "does not store 'b'" in done.err) == (1, True)


def test_keys_and_latencies(at_server: Run) -> None:
    done = at_server("bench", "kv", "--msgs", "20", "--clients", "2", "--json")
    assert [(each["what"], each["messages"]) for each in done.told] == [("put", 20), ("get", 20)]
    done = at_server("bench", "latency", "--msgs", "20", "-J", "--storage", "memory")
    assert [line.split()[0] for line in done.lines] == ["WHAT", "ping", "request", "publish"]
    assert done.lines[0].split()[-3:] == ["P50", "P99", "P99.9"]


def test_a_service_is_asked(at_server: Run) -> None:
    words = ("--msgs", "30", "--instances", "2", "--clients", "3", "--size", "10")
    (figure,) = at_server("bench", "service", *words, "--json").told
    assert (figure["what"], figure["messages"]) == ("request, 2 instances", 30)
    assert figure["p99_ms"] > 0


def test_what_others_publish_is_counted(at_server: Run, js: sync.JetStream) -> None:
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            js.connection.publish("bench.sub", b"12345")
            js.connection.flush()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        done = at_server("bench", "sub", "bench.sub", "--msgs", "20", "--json")
    finally:
        stop.set()
        thread.join()
    assert done.status == 0
    (figure,) = json.loads(done.out)
    assert (figure["what"], figure["messages"]) == ("receive", 20)
    done = at_server("bench", "sub", "bench.nobody", "--msgs", "2", "--wait", "10ms")
    assert (done.status, "0 of 2 messages came, and none for 0.01 s" in done.err) == (1, True)


def test_work_is_divided_and_latencies_are_ranked() -> None:
    assert shares(10, 3) == [4, 3, 3]
    assert shares(2, 5) == [1, 1]
    values = [float(number) for number in range(100)]
    assert [percentile(values, share) for share in (50, 99, 99.9)] == [50.0, 99.0, 99.0]


async def test_the_first_error_ends_all_and_is_raised_as_it_is() -> None:
    async def fail() -> None:
        raise Failure("no message came")

    with pytest.raises(Failure, match="no message came"):
        await timed([fail, fail])


async def test_ctrl_c_is_heard_while_nothing_is_waited_for() -> None:
    """Publishing without a stream never waits as long as the buffers take it."""
    published = 0

    async def publish(subject: str, payload: bytes) -> None:
        nonlocal published
        published += 1
        assert published < 100_000, "nobody could cancel it"

    session: Any = SimpleNamespace(connection=SimpleNamespace(publish=publish))
    task = asyncio.create_task(_into_nowhere(session, "a", b"", 10**9, lambda step: None))
    while not published:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
