"""headrace dead: what could not be handled is listed, counted and sent again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import DeadLetter, sync
from waiting import until_here

Run = Callable[..., Any]


@pytest.fixture
def letters(js: sync.JetStream) -> Iterator[sync.Stream]:
    """Three dead letters of two consumers, behind a message that is none."""
    orders = js.create_stream(name="ORDERS", subjects=["orders.>"], storage="memory")
    dead = js.create_stream(name="DEAD", subjects=["dead.>"], storage="memory")
    js.publish("dead.letters", b"no letter")
    for number in (1, 2):
        js.publish(f"orders.{number}", b"%d" % number, headers={"Customer": "7"})

    def fail(message: sync.JetStreamMessage) -> None:
        raise (ValueError if message.subject == "orders.1" else KeyError)("of the\nprogram")

    policy = DeadLetter("dead.letters", after=1)
    for name, subject in (("billing", "orders.>"), ("shipping", "orders.2")):
        consumer = orders.create_consumer(durable_name=name, filter_subject=subject)
        with consumer.consume(fail, on_failure=policy, on_error=lambda error: None):
            expected = 3 if name == "billing" else 4
            until_here(lambda: dead.info().state.messages == expected)  # noqa: B023 - asked at once
    yield dead
    js.delete_stream("DEAD")
    js.delete_stream("ORDERS")


def test_dead_letters_are_listed_counted_and_sent_again(
    at_server: Run, js: sync.JetStream, letters: sync.Stream
) -> None:
    listed = at_server("dead", "ls", "DEAD")
    assert listed.status == 0, listed.err
    assert "ORDERS billing" in listed.out and r"ValueError('of the\nprogram')" in listed.out
    documents = json.loads(at_server("dead", "ls", "DEAD", "--consumer", "billing", "--json").out)
    assert [each["sequence"] for each in documents] == [2, 3]
    assert documents[0]["subject"] == "orders.1" and documents[0]["attempts"] == 1
    counts = json.loads(at_server("dead", "count", "DEAD", "--json").out)
    assert sum(each["letters"] for each in counts) == 3
    assert {"from": "shipping", "error": "KeyError", "letters": 1} in counts

    for each in counts:  # each row of the count can be listed and sent again by what it says
        row = ("--from", each["from"], "--error", each["error"])
        listed = json.loads(at_server("dead", "ls", "DEAD", *row, "--json").out)
        assert len(listed) == each["letters"]
        assert {(one["by"], one["error"]) for one in listed} == {(each["from"], each["error"])}
        would = at_server("dead", "resend", "DEAD", *row, "--dry-run").out
        assert f"would publish {each['letters']} dead letter" in would
    assert json.loads(at_server("dead", "ls", "DEAD", "--error", "OSError", "--json").out) == []

    would = at_server("dead", "resend", "DEAD", "--dry-run")
    assert "would publish 3 dead letters of stream DEAD again to orders.1, orders.2" in would.out
    assert letters.info().state.messages == 4
    asked = at_server("dead", "resend", "DEAD", answer="n\n")
    assert asked.status == 1 and letters.info().state.messages == 4

    one = at_server("dead", "resend", "DEAD", "--seq", "2", "--to", "orders.again", "-f")
    assert one.status == 0, one.err
    again = js.stream("ORDERS").get_last_message("orders.again")
    names = {name for name in again.headers if not name.startswith("Nats-")}
    assert (again.payload, names) == (b"1", {"Customer"})

    rest = at_server("dead", "resend", "DEAD", "--consumer", "billing", "-f")
    assert "published 1 message again to orders.2" in rest.out
    assert letters.info().state.messages == 2, "the message that is no letter, and the other one"
    assert js.stream("ORDERS").get_last_message("orders.2").payload == b"2"
    assert at_server("dead", "resend", "DEAD", "--consumer", "billing", "-f").out.startswith(
        "stream DEAD has no such dead letter"
    )


def test_a_letter_that_cannot_be_stored_again_stays(
    at_server: Run, js: sync.JetStream, letters: sync.Stream
) -> None:
    done = at_server("dead", "resend", "DEAD", "--to", "nobody.has.this", "-f")
    assert done.status == 1 and "nobody.has.this" in done.err
    assert letters.info().state.messages == 4
