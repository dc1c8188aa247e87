"""The power may go, or the disk refuse, at any moment of a restore: all of it is there, or nothing."""

from __future__ import annotations

import json
import random

import pytest

from faultfs import Fault, FaultFS, PowerCut
from headrace.broker.store import FileStorage
from headrace.clock import ManualClock
from headrace.errors import StoreError
from headrace.snapshots.archive import END, MAGIC, consumer_entry, message_entry, state_entry
from headrace.snapshots.contents import ConsumerState, Delivery
from headrace.snapshots.framing import IDENTIFIER, frame
from jetstream_world import Client, World
from portions import some

NS = 1_000_000_000
THEN = 1_700_000_000 * NS
MESSAGES = 40
CONFIG = {"name": "S", "subjects": ["s.>"]}


def backup() -> bytes:
    state = {"first_seq": 5, "last_seq": 60, "consumer_count": 1}
    place = ConsumerState((3, 8), (1, 6), {7: Delivery(2, THEN), 8: Delivery(3, THEN)}, {})
    consumer = {"name": "C", "durable_name": "C", "ack_policy": "explicit", "ack_wait": 30 * NS}
    entries = [MAGIC, state_entry(state, THEN), consumer_entry("C", consumer, place, THEN)]
    entries += [
        message_entry(n + 5, b"s.%d" % n, b"", b"payload %d" % n * 30, THEN + n)
        for n in range(MESSAGES)
    ]
    return IDENTIFIER + frame(b"".join([*entries, END]))


BACKUP = backup()


def opened(fs: FaultFS) -> World:
    return World(FileStorage("/store", fs=fs, threaded=False, clock=ManualClock()))


def live(world: World) -> bool:
    """Restore; whether it was said to be there."""
    client = world.client()
    client.stream("OTHER", subjects=["other"])
    ask(client, b"other", b"1")
    answer = ask(client, b"$JS.API.STREAM.RESTORE.S", json.dumps({"config": CONFIG}).encode())
    if "deliver_subject" not in answer or "error" in answer:
        return False
    deliver = answer["deliver_subject"].encode()
    for at in range(0, len(BACKUP), 3000):
        if ask(client, deliver, BACKUP[at : at + 3000]):
            return False
        ask(client, b"other", b"2")
    return "config" in ask(client, deliver, b"")


def ask(client: Client, subject: bytes, payload: bytes) -> dict[str, str]:
    inbox = client.request(subject, payload)
    for _ in range(5):
        client.world.settle()
        client.world.tick()
    found = inbox.take()
    if not found:
        return {"error": "no answer"}
    return json.loads(found[0].payload) if found[0].payload else {}


def judge(fs: FaultFS, told: bool) -> bool:
    """Whether it is there; whole, if so. What was confirmed is."""
    world = opened(fs)
    client = world.client()
    there = "S" in (client.api("STREAM.NAMES")["streams"] or [])
    assert there or not told, "what was confirmed is gone"
    if there:
        state = client.api("STREAM.INFO.S")["state"]
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (MESSAGES, 5, 60)
        info = client.info()
        assert (info["delivered"]["stream_seq"], info["num_ack_pending"]) == (8, 2)
    else:
        assert "error" not in client.stream(), "its name is not free"
    world.storage.close()
    return there


def operations() -> range:
    fs = FaultFS()
    world = opened(fs)
    before = fs.operations
    assert live(world)
    return range(before + 1, fs.operations + 1)


@pytest.mark.parametrize("fault", ["crash", "crash after", "eio", "enospc", "short"])
def test_all_or_nothing(fault: Fault) -> None:
    outcomes = set()
    each = 1 if fault.startswith("crash") else 3
    places = operations()[::each]
    for number in some(places, 3, ["crash", "crash after"].index(fault)) if each == 1 else places:
        rng = random.Random(number)
        fs = FaultFS()
        world = opened(fs)
        fs.fail(number, fault)
        told = False
        try:
            told = live(world)
            fs = fs.kill()
        except PowerCut:
            fs = fs.power_cut(rng)
        except StoreError:
            fs = fs.kill()
        try:
            outcomes.add(judge(fs, told))
        except AssertionError as error:
            raise AssertionError(f"{fault} at operation {number}: {error}") from error
    assert outcomes == {True, False} or fault == "short"
