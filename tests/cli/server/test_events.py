from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import peers
from headrace import sync
from headrace.cli.server.events import sentence

Run = Callable[..., Any]


def test_what_happens_is_told_in_sentences(
    js: sync.JetStream, either_server: peers.ServerProcess
) -> None:
    command = [sys.executable, "-m", "headrace", "events", "-s", either_server.url]
    with subprocess.Popen(
        [*command, "--stream", "A", "--count", "4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "listening for events; Ctrl-C ends it\n"
        js.create_stream(name="B", subjects=["b"])
        stream = js.create_stream(name="A", subjects=["a"])
        consumer = stream.create_consumer(durable_name="c")
        js.publish("a", b"1")
        consumer.next().nak()
        js.connection.flush()
        consumer.next().term("no good")
        js.connection.flush()
        out, _ = process.communicate(timeout=10)
    assert [line[22:] for line in out.splitlines()] == [
        "stream A was created",
        "consumer c of stream A was created",
        "consumer c of stream A: message 1 (delivered 1 time) was refused",
        "consumer c of stream A: message 1 (delivered 2 times) is given up: no good",
    ]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            {"type": "io.nats.jetstream.metric.v1.consumer_ack", "stream": "A", "consumer": "c",
             "stream_seq": 5, "deliveries": 1, "ack_time": 1_500_000},
            "consumer c of stream A: message 5 (delivered 1 time) acknowledged after 1.5ms",
        ),
        (
            {"type": "io.nats.server.advisory.v1.client_disconnect", "reason": "Client Closed",
             "client": {"name": "x", "id": 3, "host": "::1", "acc": "A"}},
            "client x (::1, id 3) disconnected from account A: Client Closed",
        ),
        (
            {"type": "io.headrace.jetstream.advisory.v1.stream_copy_stopped", "stream": "T",
             "origin": "S", "reason": "it was made again"},
            "stream T takes nothing more of S: it was made again",
        ),
        ({"type": "io.nats.some.v9.thing", "stream": "A"}, "some.v9.thing: stream A"),
        ({}, "event"),
    ],
)  # fmt: skip
def test_sentences(event: dict[str, Any], text: str) -> None:
    assert sentence(json.loads(json.dumps(event))) == text
