"""Reads that fail under a whole hub: who needs them waits where he is, says so, and goes on by himself."""

from __future__ import annotations

import errno
import json
import random
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.store import FileStorage
from jetstream_world import Inbox, Received, World
from portions import some

ROOT = "/store"
COUNT = 240
SPAN = 8
PAYLOAD = b"x" * 100
PATIENT: dict[str, Any] = {"max_ack_pending": -1, "ack_wait": 10**13}


def open_store(fs: FaultFS) -> FileStorage:
    return FileStorage(
        ROOT, fs=fs, threaded=False, segment_bytes=8192, cache_bytes=0, salts=random.Random(3)
    )


def made() -> FaultFS:
    """A store with a stream of several sealed segments, its consumers, a copy of it, and a neighbour."""
    fs = FaultFS()
    world = World(open_store(fs))
    client = world.client()
    client.stream(allow_direct=True, duplicate_window=0)
    client.stream("N", duplicate_window=0)
    client.stream("W", retention="workqueue", duplicate_window=0)
    client.consumer("C", ack_policy="explicit", **PATIENT)
    client.consumer("F", filter_subject="s.1", **PATIENT)
    client.consumer("P", ack_policy="none", deliver_subject="to.p")
    client.consumer("C", "N")
    client.consumer("C", "W", **PATIENT)
    for number in range(COUNT):
        client.publish(b"s.%d" % (number % 3), b"%d" % number + PAYLOAD)
        client.publish(b"w.x", b"%d" % number + PAYLOAD)
    client.put(b"n.x", b"near")
    world.hub.shutdown()
    world.tick()
    world.storage.close()
    return fs


KNOWN = made()


class WritersView:
    """The disk as the commit thread sees it: what it opens is opened, and not counted as a read."""

    def __init__(self, fs: FaultFS) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def open(self, path: str, *, create: bool = False) -> int:
        fs = self._fs
        faults, fs._read_faults = fs._read_faults, {}
        reads = fs.reads
        try:
            return fs.open(path, create=create)
        finally:
            fs._read_faults, fs.reads = faults, reads


class Play:
    """One life of the hub on a copy of that store, which reads what was stored before."""

    def __init__(self) -> None:
        self.fs = KNOWN.kill()
        KNOWN._off = False
        self.said: list[str] = []
        self.refusals = 0
        storage = open_store(self.fs)
        storage._writer.handles._fs = storage._journal._fs = WritersView(self.fs)
        self.world = World(storage, JetStreamOptions(warn=self.said.append))
        self.client = self.world.client()
        self.got: dict[str, list[Received]] = {"C": [], "F": [], "P": [], "W": []}

    def wait_for(self, name: str, inbox: Inbox, count: int) -> None:
        """Nothing is needed but time."""
        for _ in range(40):
            self.got[name] += [message for message in inbox.take() if message.payload]
            if len(self.got[name]) >= count:
                return
            self.world.advance(1)
        raise AssertionError(f"{name} has {len(self.got[name])} of {count}")

    def retried(self, verb: str, document: Any) -> dict[str, Any]:
        """The answer, behind refusals that say what cannot be read."""
        for _ in range(SPAN + 1):
            answer = self.client.api(verb, document)
            if "error" not in answer:
                return answer
            assert self.world.storage.failed is None, self.fs.failed_reads
            error = answer["error"]
            assert (error["code"], error["err_code"]) == (500, 10051), error
            assert ROOT in error["description"]
            self.refusals += 1
        raise AssertionError(answer)

    def play(self) -> None:
        client, fs = self.client, self.fs
        push = client.subscribe(b"to.p")
        for name, count in (("C", COUNT), ("F", COUNT // 3)):
            self.wait_for(name, client.pull({"batch": 1000, "expires": 10**12}, name), count)
        self.wait_for("W", client.pull({"batch": 1000, "expires": 10**12}, "C", "W"), COUNT)
        self.wait_for("P", push, COUNT)
        for message in self.got["W"]:
            client.publish(message.reply)
        found = self.retried("STREAM.MSG.GET.S", {"seq": 17})
        assert found["message"]["seq"] == 17
        self.direct_get({"seq": 1, "batch": COUNT}, COUNT)
        config = {"name": "T", "sources": [{"name": "S"}], "duplicate_window": 0}
        assert "error" not in self.retried("STREAM.CREATE.T", config)
        self.world.advance(8)
        info = self.retried("STREAM.INFO.T", None)
        assert info["state"]["messages"] == COUNT, fs.failed_reads
        answer = self.retried("STREAM.PURGE.S", {"filter": "s.2", "seq": 100})
        assert answer["purged"] == 33
        config = {"durable_name": "L", "ack_policy": "explicit", "filter_subject": "s.>"}
        config["deliver_policy"] = "last_per_subject"
        document = {"stream_name": "S", "config": config}
        made = self.retried("CONSUMER.CREATE.S.L", document)
        assert made["num_pending"] == 3
        client.put(b"n.x", b"near")
        self.world.advance(12)
        self.check()

    def direct_get(self, request: dict[str, Any], count: int) -> None:
        payload = json.dumps(request).encode()
        for _ in range(SPAN + 1):
            answers = self.client.request(b"$JS.API.DIRECT.GET.S", payload).take()
            if not answers[-1].status.startswith("500"):
                break
            assert ROOT in answers[-1].status
            self.refusals += 1
        assert len(answers) == count + 1
        assert answers[-1].status.startswith("204")

    def check(self) -> None:
        expected = list(range(1, COUNT + 1))
        assert [message.stream_seq for message in self.got["C"]] == expected
        assert [message.stream_seq for message in self.got["F"]] == expected[1::3]
        assert [message.stream_seq for message in self.got["P"]] == expected
        assert [message.stream_seq for message in self.got["W"]] == expected
        info = self.client.api("STREAM.INFO.S")
        assert info["state"]["messages"] == COUNT - 33
        assert self.client.api("STREAM.INFO.W")["state"]["messages"] == 0
        assert not self.client.errors
        assert isinstance(self.world.storage, FileStorage)
        assert all(finding.lost is None for finding in self.world.storage.report)


def test_the_scenario_reads_from_the_disk() -> None:
    play = Play()
    play.play()
    assert play.fs.reads > 60
    assert play.said == []


@pytest.mark.parametrize(("error", "step"), [(errno.EIO, 1), (errno.EMFILE, 4)])
def test_reads_may_fail_for_a_while_from_each_one_on(error: int, step: int) -> None:
    """One alone is hardly ever noticed: what can be read otherwise is."""
    quiet = Play()
    begun = quiet.fs.reads
    quiet.play()
    noticed = refused = 0
    numbers = some(range(begun + 1, quiet.fs.reads + 1, step), 4 // step)
    for number in numbers:
        play = Play()
        assert play.fs.reads == begun
        for call in range(number, number + SPAN):
            play.fs.fail_read(call, error)
        play.play()
        assert play.world.storage.failed is None
        assert play.fs.failed_reads[0].startswith(f"{number} ")
        noticed += bool(play.said)
        refused += bool(play.refusals)
    assert len(numbers) > 10
    assert noticed > len(numbers) // 4
    assert refused > len(numbers) // 16
