"""Benchmarks from the command line, small ones, against both servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import sync
from headrace.cli.bench import _into_nowhere, _take, shares, timed
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
    (figure,) = at_server("bench", "consume", "--batch", "100", "--clients", "2", "--json").told
    assert (figure["what"], figure["messages"]) == ("consume 100, acks explicit", 1001)
    assert figure["bytes_per_second"] > 0
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
    done = at_server("bench", "consume", "--stream", "A")
    assert (done.status, "stream A is empty" in done.err) == (1, True)
    done = at_server("bench", "pub", "b", "--jetstream", "--stream", "A")
    assert (done.status, "does not store 'b'" in done.err) == (1, True)


def test_work_is_divided() -> None:
    assert shares(10, 3) == [4, 3, 3]
    assert shares(2, 5) == [1, 1]


async def test_the_first_error_ends_all_and_is_raised_as_it_is() -> None:
    async def fail() -> None:
        raise Failure("no message came")

    with pytest.raises(Failure, match="no message came"):
        await timed([fail, fail])


async def test_a_client_takes_its_share_and_leaves_the_rest_of_its_buffer_to_the_others() -> None:
    """What it acknowledged beyond, another client would wait for, without end."""
    waiting, acknowledged = [SimpleNamespace(payload=b"x") for _ in range(40)], list[Any]()

    class Messages:
        """A consume whose buffer has ten messages, and the rest at the second look."""

        async def __aenter__(self) -> Messages:
            return self

        async def __aexit__(self, *exc: object) -> None:
            pass

        async def next_batch(self, limit: int) -> list[Any]:
            there = 10 if len(waiting) == 40 else len(waiting)
            return [waiting.pop(0) for _ in range(min(limit, there))]

    async def flush() -> None:
        pass

    consumer: Any = SimpleNamespace(
        consume=lambda max_messages: Messages(), ack_all=acknowledged.extend
    )
    session: Any = SimpleNamespace(connection=SimpleNamespace(flush=flush))
    took = list[int]()
    await _take(consumer, session, 12, 100, True, lambda count, size: took.append(count))
    assert (took, len(acknowledged), len(waiting)) == ([10, 2], 12, 28)


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
