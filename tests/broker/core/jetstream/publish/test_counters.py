"""Counters: exact totals, whatever is added, and nothing that is no counter."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.core.jetstream.config.options import Refused
from headrace.broker.core.jetstream.publish.admission import counted, read_increment
from headrace.broker.store import FileStorage
from jetstream_world import Client, World


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream(allow_msg_counter=True)
    return client


@given(st.lists(st.integers(-(10**40), 10**40), min_size=1))
def test_the_total_is_the_sum_of_what_was_added(steps: list[int]) -> None:
    before, total = None, 0
    for step in steps:
        increment = read_increment({b"Nats-Incr": b"%+d" % step}, b"", allowed=True)
        assert increment == step
        headers, body, value = counted(increment, b"NATS/1.0\r\n\r\n", before)
        total += step
        assert json.loads(body) == {"val": str(total)}
        assert value == b"%d" % total
        before = (headers, body)


def test_numbers_too_long_to_count_with_are_refused() -> None:
    with pytest.raises(Refused, match="increment is invalid"):
        read_increment({b"Nats-Incr": b"9" * 1001}, b"", allowed=True)
    with pytest.raises(Refused, match="increment is invalid"):
        counted(1, b"", (b"", b'{"val":"%b"}' % (b"9" * 4000)))


@pytest.mark.parametrize("body", [b"", b"7", b"[]", b'{"val":7}', b"{", b'{"val":"\xff"}'])
def test_a_last_message_that_is_no_total_breaks_the_counter(body: bytes) -> None:
    with pytest.raises(Refused, match="counter is broken"):
        counted(1, b"", (b"", body))


def test_what_sources_have_counted_stays_with_the_total() -> None:
    before = (b'NATS/1.0\r\nNats-Counter-Sources: {"A":{}}\r\n\r\n', b'{"val":"2"}')
    headers, body, _ = counted(3, b"NATS/1.0\r\nNats-Incr: 3\r\n\r\n", before)
    assert headers == b'NATS/1.0\r\nNats-Incr: 3\r\nNats-Counter-Sources: {"A":{}}\r\n\r\n'
    assert body == b'{"val":"5"}'


def test_the_acknowledgement_says_the_total(client: Client) -> None:
    assert client.put(b"s.a", Nats_Incr="2") == {"stream": "S", "seq": 1, "val": "2"}
    assert client.put(b"s.a", Nats_Incr="+40")["val"] == "42"
    assert client.put(b"s.b", Nats_Incr="-1")["val"] == "-1"


def test_many_increments_in_one_tick_each_get_their_own_total(client: Client) -> None:
    world = client.world
    inbox = client.subscribe()
    line = b"HPUB s.a %b 26 26\r\nNATS/1.0\r\nNats-Incr: 1\r\n\r\n\r\n" % inbox.subject
    client.session.receive(line * 5)
    world.tick()
    assert [json.loads(m.payload)["val"] for m in inbox.take()] == ["1", "2", "3", "4", "5"]


def test_totals_go_on_after_a_restart() -> None:
    world = World(FileStorage("/s", fs=FaultFS(), threaded=False, salts=random.Random(1)))
    client = world.client()
    client.stream(allow_msg_counter=True)
    client.put(b"s.a", Nats_Incr="5")
    storage = world.storage
    assert isinstance(storage, FileStorage)
    fs = storage._fs
    assert isinstance(fs, FaultFS)
    world.restart(lambda: FileStorage("/s", fs=fs.kill(), threaded=False, salts=random.Random(1)))
    assert world.client().put(b"s.a", Nats_Incr="5")["val"] == "10"
