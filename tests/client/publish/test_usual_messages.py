"""Usual messages are made without a call of ``_command``, and come out as it would make them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.client import connect
from headrace.client.message import HeadersLike
from headrace.client.publish.fast_answers import APPEND, with_reply
from headrace.client.publish.fast_publisher import FastPublisher, State
from headrace.client.publish.publisher import Publisher
from headrace.client.publish.transports import InProcessPublisher, WirePublisher, _Source
from headrace.embedded import Broker

pytestmark = pytest.mark.usefixtures("no_leaks")

Messages = list[tuple[str, Any] | tuple[str, Any, HeadersLike]]


def messages(source: random.Random, count: int) -> Messages:
    """Usual ones, and some with a header, a buffer or a new subject."""
    made: Messages = []
    for number in range(count):
        subject = f"s.{source.choice('abc')}" if source.random() < 0.9 else f"s.n{number}"
        payload: Any = source.randbytes(source.choice([0, 1, 9, 10, 200]))
        if source.random() < 0.1:
            payload = bytearray(payload)
        made.append((subject, payload, {"a": "b"}) if source.random() < 0.1 else (subject, payload))
    return made


def counted(publisher: Publisher, patched: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the messages that ``_command`` is called for."""
    called: list[int] = []
    genuine = publisher._command

    def command(index: int, *message: Any) -> object:
        called.append(index)
        return genuine(index, *message)

    patched.setattr(publisher, "_command", command)
    return called


def unusual(given: Messages) -> list[int]:
    """The numbers of those that must be looked at; a subject is known from its second message on."""
    known, found = {"s.a", "s.b", "s.c"}, []
    for number, (subject, payload, *headers) in enumerate(given):
        if headers or type(payload) is not bytes or subject not in known:
            found.append(number)
        known.add(subject)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("deduplicate", [False, True])
async def test_on_a_socket(seed: int, deduplicate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = messages(random.Random(seed), 300)
    async with Broker(port=-1) as broker, connect(broker.client_url) as connection:
        publisher = connection.jetstream().publisher(deduplicate=deduplicate)
        assert isinstance(publisher, WirePublisher)
        publisher._open()
        publisher.hold()  # nothing is sent
        for subject in ("s.a", "s.b", "s.c"):
            publisher._head(subject)
        called = counted(publisher, monkeypatch)
        assert publisher._send_some(iter(given))
        assert called == unusual(given)
        made = [publisher._command(number, *message) for number, message in enumerate(given)]
        assert list(publisher.unacked.values()) == made
        assert publisher._unacked_bytes == sum(map(len, made))
        publisher.unacked.clear()
        publisher.close()


@pytest.mark.parametrize("deduplicate", [False, True])
async def test_in_process(deduplicate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given: Messages = [(f"s.{'abc'[n % 3]}", b"%d" % n) for n in range(200)]
    async with Broker(port=-1) as broker, broker.connect() as connection:
        publisher = connection.jetstream().publisher(deduplicate=deduplicate)
        assert isinstance(publisher, InProcessPublisher)
        publisher._open()
        publisher.hold()
        for subject in ("s.a", "s.b", "s.c"):
            publisher._head(subject)
        called = counted(publisher, monkeypatch)
        assert publisher._send_alike(_Source(given)) is not None
        assert not called
        made = [publisher._command(number, *message) for number, message in enumerate(given)]
        assert list(publisher.unacked.values()) == made
        assert publisher._unacked_bytes == publisher._total(made)
        publisher.unacked.clear()
        publisher.close()


@pytest.mark.parametrize("seed", range(5))
async def test_in_a_fast_batch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = messages(random.Random(seed), 300)
    async with Broker(port=-1) as broker, connect(broker.client_url) as connection:
        js = connection.jetstream()
        publisher = js.publisher(fast=True)
        assert isinstance(publisher, FastPublisher)
        publisher._open()
        for subject in ("s.a", "s.b", "s.c"):
            publisher._head(subject)
        called = counted(publisher, monkeypatch)
        publisher._state, publisher._limit = State.OPEN, 1000
        publisher._prefix = b"inbox.10.fail."
        assert publisher._send_some(iter(given))
        assert called == unusual(given)
        one = ("s.a", b"alone")
        assert publisher._send_one(*one, None, "") == len(given)
        made = [
            with_reply(publisher._command(0, *message), publisher._prefix, place, APPEND)
            for place, message in enumerate([*given, one], 1)
        ]
        assert list(publisher._placed) == made
        assert publisher._unacked_bytes == sum(map(len, made))
        publisher._placed.clear()
        publisher._state = State.IDLE
        publisher.close()
