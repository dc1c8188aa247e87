"""Accounts on one disk: what one was promised is there, whatever became of the others' writes."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.core.accounts.accounts import Account
from headrace.broker.core.hub import Hub
from headrace.broker.core.jetstream.config.options import JetStreamOptions
from headrace.broker.core.options import AccountOptions, JetStreamLimits
from headrace.broker.core.peer import Peer
from headrace.broker.store import FileStorage
from headrace.clock import ManualClock

NAMES = ("A", "B", "C")
steps = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),  # who publishes in this tick
        st.sampled_from([0, 0, 0, 1, 2]),  # the write of the tick that finds no room
        st.booleans(),  # whether time passes afterwards
    ),
    max_size=8,
)


class Disk:
    """Accounts with a stream each, on a disk that can be full."""

    def __init__(self, fs: FaultFS) -> None:
        self.fs = fs
        self.clock = ManualClock()
        self.hub = Hub(self.clock, random.Random(1))
        self.storage = FileStorage("/store", fs=fs, threaded=False)
        accounts = [AccountOptions(name=name, jetstream=JetStreamLimits()) for name in NAMES]
        self.hub.configure_accounts(accounts)
        self.hub.start_jetstream(self.storage, JetStreamOptions())
        self.client = self.hub.connect(Peer())
        self.answers: list[tuple[str, dict[str, Any]]] = []
        for name in NAMES:
            self.account(name).router.add_sink(
                b"answers", lambda *message, name=name: self._answered(name, message[3])
            )

    def account(self, name: str) -> Account:
        account = self.hub.accounts.get(name)
        assert account is not None
        return account

    def _answered(self, name: str, payload: bytes) -> None:
        self.answers.append((name, json.loads(payload)))

    def publish(self, name: str, subject: bytes, payload: bytes) -> None:
        router = self.account(name).router
        router.deliver(router.find(subject), subject, b"answers", b"", payload, self.client, 0)

    def tick(self, seconds: float = 0) -> list[tuple[str, dict[str, Any]]]:
        """The answers of this tick, and of the time after it."""
        self.hub.end_of_tick()
        self.clock.advance(seconds)
        self.hub.run_timers()
        self.hub.end_of_tick()
        answers, self.answers = self.answers, []
        return answers

    def stored(self, name: str) -> list[bytes]:
        engine = self.account(name).engine
        assert engine is not None
        store = engine.registry.streams["S"].store
        return [m.payload for m in store.read(1, None, 1000, 1 << 20, store.last_seq)]


@settings(max_examples=60)
@given(steps)
def test_what_was_acknowledged_is_there_and_what_was_refused_is_not(
    script: list[tuple[list[str], int, bool]],
) -> None:
    fs = FaultFS()
    disk = Disk(fs)
    for name in NAMES:
        disk.publish(name, b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
    disk.tick()
    kept: dict[str, list[bytes]] = {name: [] for name in NAMES}
    refused: dict[str, list[bytes]] = {name: [] for name in NAMES}
    number = 0
    for publishers, full_at, wait in script:
        sent: dict[str, list[bytes]] = {name: [] for name in NAMES}
        for name in publishers:
            number += 1
            sent[name].append(b"%d" % number)
            disk.publish(name, b"s", sent[name][-1])
        if full_at:
            fs.fail(fs.operations + full_at, "enospc")
        for name, answer in disk.tick(1.0 if wait else 0):
            payload = sent[name].pop(0)
            (refused if "error" in answer else kept)[name].append(payload)
        assert not any(sent.values()), "each is answered, once"
        fs._faults.clear()  # by the next tick there is room again
    for name in NAMES:
        assert disk.stored(name) == kept[name]
    disk.hub.shutdown()
    disk.tick()
    disk.storage.close()
    again = Disk(fs)
    for name in NAMES:
        found = again.stored(name)
        # A refused message may be found again where nothing was written after the failed attempt.
        assert [payload for payload in found if payload in kept[name]] == kept[name]
        assert set(found) <= {*kept[name], *refused[name]}
    again.storage.close()
