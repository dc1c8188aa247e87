"""Benchmarks from the command line, small ones, against both servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import sync
from headrace.cli.bench import into_nowhere

Run = Callable[..., Any]


def test_a_stream_is_filled_and_emptied(at_server: Run, js: sync.JetStream) -> None:
    words = ("--msgs", "3000", "--size", "64", "--json")
    (figure,) = at_server("bench", "pub", "bench.a", *words).told
    assert (figure["what"], figure["messages"]) == ("publish", 3000)
    assert figure["bytes_per_second"] > figure["messages_per_second"] > 0
    done = at_server("bench", "pub", "bench.a", "--jetstream", "--msgs", "1001")
    assert "created stream benchstream; `headrace stream rm" in done.err
    assert done.lines[0].split() == ["WHAT", "MESSAGES", "TIME", "MSG/S", "BYTES/S"]
    stream = js.stream("benchstream")
    assert stream.info().state.messages == 1001
    (figure,) = at_server("bench", "consume", "--json").told
    assert (figure["what"], figure["messages"]) == ("consume", 1001)
    assert figure["bytes_per_second"] > 0
    (figure,) = at_server("bench", "consume", "--msgs", "500", "--json").told
    assert figure["messages"] == 500
    assert list(stream.consumer_names()) == []
    assert at_server("bench", "pub", "bench.a", "-J", "--msgs", "10").status == 0
    assert stream.info().state.messages == 1011


def test_what_cannot_be_measured_is_said(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="A", subjects=["a"])
    done = at_server("bench", "consume", "--stream", "A")
    assert (done.status, "stream A is empty" in done.err) == (1, True)
    done = at_server("bench", "pub", "b", "--jetstream", "--stream", "A")
    assert (done.status, "does not store 'b'" in done.err) == (1, True)


async def test_ctrl_c_is_heard_while_nothing_is_waited_for() -> None:
    """Publishing without a stream never waits as long as the buffers take it."""
    published = 0

    async def publish(subject: str, payload: bytes) -> None:
        nonlocal published
        published += 1
        assert published < 100_000, "nobody could cancel it"

    session: Any = SimpleNamespace(connection=SimpleNamespace(publish=publish))
    task = asyncio.create_task(into_nowhere(session, "a", b"", 10**9, lambda step: None))
    while not published:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
