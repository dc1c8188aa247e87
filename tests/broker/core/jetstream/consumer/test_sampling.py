"""Metrics of acknowledgements: which are told, what they say, and to whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.broker.core.jetstream.consumer.acks import percentage
from jetstream_world import Client, Inbox, World

SECOND = 1_000_000_000
METRICS = b"$JS.EVENT.METRIC.>"


def ready(messages: int, **config: Any) -> tuple[World, Client, Inbox]:
    world = World()
    client = world.client()
    client.stream()
    assert "error" not in client.consumer(**config)
    for _ in range(messages):
        client.put(b"s.x", b"x")
    return world, client, client.subscribe(METRICS)


def test_a_sampled_ack_says_how_long_it_took() -> None:
    world, client, metrics = ready(1, sample_freq="100%", ack_wait=60 * SECOND)
    (message,) = client.pull().take()
    client.ack(message, b"-NAK")
    world.advance(2)
    (message,) = client.pull().take()
    world.advance(1.5)
    client.ack(message)
    (metric,) = metrics.take()
    assert metric.subject == b"$JS.EVENT.METRIC.CONSUMER.ACK.S.C"
    document = json.loads(metric.payload)
    assert document.pop("id")
    assert document.pop("timestamp")
    assert document == {
        "type": "io.nats.jetstream.metric.v1.consumer_ack",
        "stream": "S",
        "consumer": "C",
        "consumer_seq": 2,
        "stream_seq": 1,
        "ack_time": 3 * SECOND // 2,
        "deliveries": 2,
    }


def test_an_ack_of_nothing_a_refusal_and_a_term_are_no_samples() -> None:
    _, client, metrics = ready(2, sample_freq="100")
    first, second = client.pull({"batch": 2}).take()
    client.ack(first)
    assert len(metrics.take()) == 1
    client.ack(first)
    client.ack(second, b"-NAK")
    client.ack(second, b"+TERM")
    assert not metrics.take()


def test_acks_that_come_together_are_sampled_each() -> None:
    _, client, metrics = ready(50, sample_freq="100")
    messages = client.pull({"batch": 50}).take()
    client.send(b"".join(b"PUB %b 4\r\n+ACK\r\n" % message.reply for message in messages))
    assert [json.loads(m.payload)["stream_seq"] for m in metrics.take()] == list(range(1, 51))


def test_a_percentage_is_a_share() -> None:
    _, client, metrics = ready(400, sample_freq="25%")
    for message in client.pull({"batch": 400}).take():
        client.ack(message)
    assert 60 < len(metrics.take()) < 140


def test_without_sampling_there_are_no_metrics_and_an_update_begins_them() -> None:
    _, client, metrics = ready(2)
    first, second = client.pull({"batch": 2}).take()
    client.ack(first)
    assert not metrics.take()
    client.consumer(sample_freq="100")
    client.ack(second)
    assert len(metrics.take()) == 1


@pytest.mark.parametrize(
    ("text", "percent"), [("", 0), ("0", 0), ("50", 50), ("50%", 50), (" 7 % ", 7), ("999", 100)]
)
def test_frequencies_are_read(text: str, percent: int) -> None:
    assert percentage(text) == percent
