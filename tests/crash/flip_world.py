"""A broker with a bit of everything, its files, and what must be true when one of them is damaged."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from disks import disk_of
from faultfs import FaultFS
from headrace.api.base import to_wire
from headrace.broker.core.jetstream.consumer.consumer import Consumer
from headrace.broker.core.jetstream.engine.registry import Registry
from headrace.broker.store import FileStorage
from headrace.broker.store.format.entries import FILE_HEADER_BYTES, decode_file_header
from headrace.broker.store.format.record import CRC_BYTES, HEAD, HEAD_BYTES, MARK, U32, scan
from headrace.broker.store.meta.journal import MAGIC
from headrace.broker.store.meta.spare import UNSETTLED
from headrace.message import StoredMessage
from jetstream_world import Client, Received, World

BIG = 1 << 40
GONE = ("X", "Y")
"""Streams that were deleted once they had held messages; ``Y`` was made anew afterwards under that name and
deleted again."""

EMPTY = ("E", "Z")
"""Streams without a message, hence without files; the second one was deleted."""


@dataclass
class Known:
    """A store's files, and what a broker showed of them."""

    fs: FaultFS
    messages: dict[str, dict[int, StoredMessage]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    configs: dict[str, Any] = field(default_factory=dict)
    owed: dict[str, set[int]] = field(default_factory=dict)
    ever: dict[str, dict[int, tuple[bytes, bytes]]] = field(default_factory=dict)
    old: bool = False  # written before there were second copies

    def copy(self) -> FaultFS:
        twin = self.fs.kill()
        self.fs._off = False
        return twin


def open_store(fs: FaultFS) -> FileStorage:
    return FileStorage(
        "/s",
        fs=fs,
        threaded=False,
        segment_bytes=8192,
        cache_bytes=0,
        salts=random.Random(3),
    )


def registry_of(world: World) -> Registry:
    engine = world.hub.engine
    assert engine is not None
    return engine.registry


def owed(consumer: Consumer) -> set[int]:
    """The messages a consumer still has to get, or to acknowledge."""
    found = set()
    lasts = set(consumer.backlog.last_per_subject.to_journal(consumer.state.delivered_stream))
    start = max(consumer.state.next_seq, consumer.backlog.last_per_subject.after)
    for message in consumer.stream.store.read(1, consumer.filter, BIG, BIG, BIG):
        sequence = message.sequence
        if sequence >= start or sequence in consumer.state.pending or sequence in lasts:
            found.add(sequence)
    return found


def made(*, clean: bool, long: bool = False, empty: bool = True) -> Known:
    """A broker that has done some work; ``long`` is enough of it for journals to be rewritten, with ``empty``
    there are streams that never held a message."""
    fs = FaultFS()
    known = Known(fs)
    world = World(open_store(fs))
    client = world.client()
    _streams(client)
    for name in EMPTY if empty else ():
        client.stream(name)
        client.consumer("D", name)
    rng = random.Random(8)
    for turn in range(12):
        _work(known, client, rng)
        if turn == 4:
            for name in (*GONE, *EMPTY[1:]):
                client.api(f"STREAM.DELETE.{name}")
            client.stream("Y")
            client.consumer("C", "Y", deliver_policy="new")
        if turn == 7:
            client.api("STREAM.DELETE.Y")
            client.api("CONSUMER.DELETE.S.gone")
    if long:
        for number in range(400):
            client.consumer("big", description=f"{number} " + "x" * 3500)
    world.advance(1)
    registry = registry_of(world)
    for name, stream in registry.streams.items():
        if stream.config.storage == "memory":
            continue
        known.messages[name] = {m.sequence: m for m in stream.store.read(1, None, BIG, BIG, BIG)}
        known.last[name] = stream.store.last_seq
        known.configs[name] = to_wire(stream.config)
        for consumer in stream.consumers.values():
            known.owed[consumer.key] = owed(consumer)
            known.configs[consumer.key] = to_wire(consumer.config)
    if clean:
        world.hub.shutdown()
        world.tick()
        world.storage.close()
    known.fs = fs.kill()
    return known


def aged(known: Known) -> Known:
    """The same store as it was written before there were second copies, and stamps in the journal."""
    fs = known.copy()
    for path in fs.files():
        if path.endswith("/spare"):
            fs.unlink(path)
        elif "/meta/journal-" in path:
            fs.overwrite(path, _unstamped(fs.content(path)))
    return replace(known, fs=fs, old=True)


def _unstamped(data: bytes) -> bytes:
    _, salt = decode_file_header(MAGIC, data, "") or (0, 0)
    parts = [data[:FILE_HEADER_BYTES]]
    for item in scan(data, FILE_HEADER_BYTES, len(data), salt):
        at = item.offset + HEAD_BYTES
        if data[at : at + item.subject_len].startswith(UNSETTLED.encode()):
            continue  # there were none
        head = HEAD.pack(item.size, MARK, item.kind, 0, item.sequence, 0, item.subject_len)
        body = head + data[item.offset + len(head) : item.offset + item.size - CRC_BYTES]
        parts.append(body + U32.pack(crc32(body, salt)))
    return b"".join(parts).ljust(len(data), b"\0")


def _streams(client: Client) -> None:
    client.stream("S")
    client.consumer("D", ack_wait=5_000_000_000)
    client.consumer("N", deliver_policy="new", ack_policy="none")
    client.consumer("gone")
    client.stream("W", retention="workqueue")
    client.consumer("D", "W", max_ack_pending=5)
    client.stream("I", retention="interest")
    client.consumer("A", "I", filter_subject="i.0")
    client.consumer("B", "I", ack_policy="all")
    client.stream("KV_k", subjects=["$KV.k.>"], max_msgs_per_subject=1, discard="new")
    client.stream("T", subjects=["t.>"], sources=[{"name": "S"}])
    client.stream("M", storage="memory")
    client.consumer("D", "M")
    for name in GONE:
        client.stream(name)
        client.consumer("D", name)


def _work(known: Known, client: Client, rng: random.Random) -> None:
    names = client.api("STREAM.NAMES")["streams"]
    for name in (*"SWIXY", "KV_k", "M"):
        if name not in names:
            continue
        for _ in range(rng.randrange(4, 9)):
            payload = rng.randbytes(rng.choice([5, 40, 300]))
            key = rng.randrange(4)
            subject = (
                b"$KV.k.%d" % key if name == "KV_k" else b"%b.%d" % (name.lower().encode(), key)
            )
            answer = client.put(subject, payload)
            if "seq" in answer:
                known.ever.setdefault(name, {})[answer["seq"]] = (subject, payload)
    if "L" not in known.ever:  # in the middle of things
        known.ever["L"] = {}
        made = client.consumer("L", "S", deliver_policy="last_per_subject", filter_subject="s.>")
        assert "error" not in made, made
    for stream, name in (("S", "D"), ("S", "N"), ("W", "D"), ("I", "A"), ("I", "B"), ("S", "L")):
        inbox = client.pull({"batch": rng.randrange(1, 6), "no_wait": True}, name, stream)
        messages = [message for message in inbox.take() if message.reply]
        for message in messages:
            fate = rng.random()
            if name != "N" and fate < 0.7:
                client.ack(message)
            elif name != "N" and fate < 0.8:
                client.ack(message, b"-NAK")
    client.world.advance(rng.choice([0.01, 0.2, 6]))


# -- damage


def damage(fs: FaultFS, rng: random.Random) -> tuple[str, str]:
    """Do something to one file; what, and to which."""
    used_files = [path for path in fs.files() if fs.content(path).strip(b"\0")]
    paths = [path for path in used_files if not path.endswith("/lock")]
    path = rng.choice(paths)
    if rng.random() < 0.5:  # where the most is at stake
        path = next(path for path in paths if "/meta/journal" in path)
    used = len(fs.content(path).rstrip(b"\0"))
    what = rng.choices(["flip", "empty", "cut", "remove", "copy"], [20, 1, 2, 1, 1])[0]
    if what == "flip":
        fs.flip_bit(path, rng.randrange(8 * used))
    elif what == "empty":
        fs.overwrite(path, b"")
    elif what == "cut":
        fs.overwrite(path, fs.content(path)[: rng.randrange(used)])
    elif what == "remove":
        fs.unlink(path)
    else:
        twin = path + rng.choice([".bak", "~", ".1"])
        fs.close(fs.open(twin, create=True))
        fs.overwrite(twin, fs.content(path))
    return what, path


# -- what must be true


def check(known: Known, fs: FaultFS, what: str, path: str, *, thorough: bool) -> None:
    """Start on damaged files and compare."""
    world = World(storage := open_store(fs))
    assert isinstance(storage, FileStorage)
    registry = registry_of(world)
    names = {name for name in known.configs if "/" not in name}
    shown = {name for name, stream in registry.streams.items() if stream.config.storage == "file"}
    lost = _check_streams(known, registry, names, shown, what)
    changed = bool(lost)
    for name in shown:
        changed |= _check_messages(known, registry, name, what, path)
        changed |= _check_consumers(known, registry, name, what)
    if changed and not (path.endswith(".seg") and what != "flip"):
        assert storage.report
    if what == "copy":
        assert [finding.what for finding in storage.report if "left alone" in finding.what]
        assert not changed
        assert fs.exists(path)
    if thorough:
        before = [(name, owed_of(registry, name)) for name in sorted(shown)]
        world.restart(lambda: open_store(disk_of(storage).kill()))
        again = registry_of(world)
        assert [(name, owed_of(again, name)) for name in sorted(shown)] == before
        check_deliveries(known, world)
        check_names(world, sorted(names))


def _check_streams(
    known: Known, registry: Registry, names: set[str], shown: set[str], what: str
) -> set[str]:
    """All are there, or are named as lost; returns those."""
    assert shown <= names
    lost = names - shown
    assert set(registry.lost.reasons) == lost
    if known.old:
        assert len(lost) <= 1 or what != "flip"
    else:
        assert not lost
    return lost


def owed_of(registry: Registry, name: str) -> dict[str, set[int]]:
    return {key: owed(consumer) for key, consumer in registry.streams[name].consumers.items()}


def _check_messages(known: Known, registry: Registry, name: str, what: str, path: str) -> bool:
    """No wrong byte, at most the record hit is gone; whether something is other than before."""
    stream = registry.streams[name]
    assert to_wire(stream.config) == known.configs[name]
    shown = {m.sequence: m for m in stream.store.read(1, None, BIG, BIG, BIG)}
    before = known.messages[name]
    for sequence, message in shown.items():
        if sequence in before:
            assert message == before[sequence]
        elif name in known.ever:  # its removal is what was lost
            assert (message.subject, message.payload) == known.ever[name][sequence]
    lost = set(before) - set(shown)
    if what == "flip" or f"/streams/{name}/" not in path or not path.endswith(".seg"):
        assert len(lost) <= 1, (name, lost)
        assert stream.store.last_seq >= known.last[name]
    return shown != before


def _check_consumers(known: Known, registry: Registry, name: str, what: str) -> bool:
    """Everyone is there, and skips nothing; whether somebody is where he was not."""
    stream = registry.streams[name]
    there = {consumer.key for consumer in stream.consumers.values()}
    missing = {key for key in known.owed if key.startswith(name + "/")} - there
    assert there <= set(known.owed) or known.old  # or the record of a deletion was the only one
    assert not missing or known.old
    assert len(missing) <= 1 or what != "flip"
    changed = bool(missing)
    for consumer in stream.consumers.values():
        if consumer.key not in known.owed:
            continue
        assert to_wire(consumer.config) == known.configs[consumer.key]
        owes = owed(consumer)
        skipped = known.owed[consumer.key] - owes
        assert not [sequence for sequence in skipped if stream.store.get(sequence) is not None]
        changed |= bool(owes - known.owed[consumer.key])
    return changed


def check_deliveries(known: Known, world: World) -> None:
    """Whoever is owed something gets it, byte for byte."""
    world.advance(600)  # this life's clock began where the one before did
    for name, stream in registry_of(world).streams.items():
        for consumer in list(stream.consumers.values()):
            expected = owed(consumer)
            received: set[int] = set()
            for _ in range(40):
                if expected <= received:
                    break
                client = world.client()  # who says nothing for long is hung up on
                inbox = client.pull({"batch": 50, "no_wait": True}, consumer.name, name)
                while messages := [message for message in inbox.take() if message.reply]:
                    for message in messages:
                        received.add(message.stream_seq)
                        _check_bytes(known, name, message)
                        client.ack(message)
                world.advance(31)
            assert expected <= received, (consumer.key, expected - received)


def _check_bytes(known: Known, name: str, message: Received) -> None:
    before = known.messages.get(name, {}).get(message.stream_seq)
    if before is not None:
        assert (message.subject, message.payload) == (before.subject, before.payload)
    elif message.stream_seq in known.ever.get(name, {}):
        assert (message.subject, message.payload) == known.ever[name][message.stream_seq]


def check_names(world: World, names: list[str]) -> None:
    """Every name can be deleted and made anew."""
    client = world.client()
    for name in dict.fromkeys((*names, *GONE, *EMPTY)):
        if name in names:
            assert client.api(f"STREAM.DELETE.{name}").get("success"), name
        answer = client.stream(name, subjects=[f"new.{name}.>"])
        assert "error" not in answer, answer
        assert client.put(b"new.%b.x" % name.encode(), b"1").get("seq") == 1
        assert client.info("none", name)["error"]["err_code"] == 10014
    world.storage.close()
