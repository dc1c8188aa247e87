"""A consumer's state in the journal: a snapshot, and deltas of what happened since.

All numbers are little-endian. Deadlines are written as wall-clock time, so that they mean the same after a
restart.

Snapshot:  ``1`` u8 · delivered consumer, delivered stream, floor consumer, floor stream u64 ·
           pending u32 × (stream, consumer sequence, deadline, deliveries u64) ·
           last per subject u32 × stream u64 · when the message at delivered stream was stored u64 ·
           given up u32 × (stream, deliveries u64)
Delta:     any number of
           ``N`` first deliveries: first consumer sequence, deadline u64, n u32, n × stream u64
           ``R`` redeliveries: n u32, n × (stream, consumer sequence, deliveries, deadline u64)
           ``T`` deadlines set anew: n u32, n × (stream, deadline u64)
           ``D`` done: n u32, n × stream u64
           ``X`` given up: n u32, n × (stream, deliveries u64)
           ``F`` the floor after these: floor consumer, floor stream u64
           ``P`` a position without tracking: delivered consumer, delivered stream u64
           ``S`` when the message was stored that was delivered last, in nanoseconds since the epoch u64

Backups have the state in words of their own (``backup_of``, ``snapshot_of_backup``). Deliveries keep their
numbers and the time of the last one; the deadline follows from that. Which of them were refused, and the
messages a ``last_per_subject`` consumer began with, are not told: what a client refused is delivered again
when its time is over, and such a consumer goes on behind what it was given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from struct import Struct, pack, unpack_from
from typing import Final

from .....errors import StoreFormatError
from .....snapshots.contents import ConsumerState, Delivery, SnapshotFormatError
from ...ports import StreamStore
from .delivery_state import DeliveryState

_VERSION: Final = 2
_FORMER: Final = 1  # without what follows ``lasts``
_NEVER_NS: Final = (1 << 63) - 1
_HEAD: Final = Struct("<BQQQQ")
_COUNT: Final = Struct("<I")
_BATCH: Final = Struct("<cQQI")
_MANY: Final = Struct("<cI")
_PAIR: Final = Struct("<cQQ")
_STAMP: Final = Struct("<cQ")
_U64: Final = Struct("<Q")
_SEQUENCE_MAX: Final = (1 << 63) - 1


def encode_snapshot(state: DeliveryState, wall_offset_ns: int, lasts: list[int]) -> bytes:
    """The whole state. ``wall_offset_ns`` is wall-clock minus monotonic time.

    ``lasts`` are the stream sequences still to deliver of those a ``last_per_subject`` consumer began with.
    """
    pending = []
    for sequence, (consumer_seq, deadline_ns) in state.pending.items():
        count = state.deliveries.get(sequence, 1)
        pending += [sequence, consumer_seq, deadline_ns + wall_offset_ns, count]
    head = _HEAD.pack(
        _VERSION,
        state.delivered_consumer,
        state.delivered_stream,
        state.floor_consumer,
        state.floor_stream,
    )
    return b"".join(
        (
            head,
            _COUNT.pack(len(pending) // 4),
            pack(f"<{len(pending)}Q", *pending),
            _COUNT.pack(len(lasts)),
            pack(f"<{len(lasts)}Q", *lasts),
            _U64.pack(state.delivered_stamp_ns),
            _pairs(state.dead.items()),
        )
    )


def _pairs(pairs: Collection[tuple[int, int]]) -> bytes:
    flat = [number for pair in pairs for number in pair]
    return _COUNT.pack(len(pairs)) + pack(f"<{len(flat)}Q", *flat)


def encode_delta(state: DeliveryState, wall_offset_ns: int) -> bytes:
    """What happened since the log was cleared; empty when nothing did."""
    stamp = _STAMP.pack(b"S", state.delivered_stamp_ns)
    if not state.tracks:
        return _PAIR.pack(b"P", state.delivered_consumer, state.delivered_stream) + stamp
    parts: list[bytes] = []
    for batch in state.batches:
        if batch.stream_seqs:
            size = len(batch.stream_seqs)
            deadline_ns = batch.deadline_ns + wall_offset_ns
            parts.append(_BATCH.pack(b"N", batch.first_consumer_seq, deadline_ns, size))
            parts.append(pack(f"<{size}Q", *batch.stream_seqs))
    if parts:
        parts.append(stamp)
    if state.again:
        parts.append(_MANY.pack(b"R", len(state.again)))
        for sequence, consumer_seq, count, deadline_ns in state.again:
            parts.append(pack("<4Q", sequence, consumer_seq, count, deadline_ns + wall_offset_ns))
    if state.moved:
        parts.append(_MANY.pack(b"T", len(state.moved)))
        for sequence, deadline_ns in state.moved.items():
            parts.append(pack("<2Q", sequence, deadline_ns + wall_offset_ns))
    if state.done:
        parts.append(_MANY.pack(b"D", len(state.done)))
        parts.append(pack(f"<{len(state.done)}Q", *state.done))
    if state.given_up:
        parts.append(b"X" + _pairs(state.given_up.items()))
    parts.append(_PAIR.pack(b"F", state.floor_consumer, state.floor_stream))
    return b"".join(parts)


def restore(
    state: DeliveryState,
    snapshot: bytes,
    deltas: Sequence[bytes],
    wall_offset_ns: int,
    loose: Sequence[bytes] = (),
    *,
    latest_ns: int = _NEVER_NS,
    lead_ns: int = 0,
) -> list[int]:
    """Bring a fresh state to where the journal left it; returns ``lasts``, as far as they are left.

    Deadlines beyond ``latest_ns``, a wall-clock time, were written by a clock that was so much ahead.

    ``loose`` are deltas that follow lost ones: what is over by their account is over, and what may have
    been delivered in between is delivered again.

    Raises StoreFormatError when the journal was written by a version we cannot read.
    """
    version = snapshot[0] if snapshot else 0
    if version not in (_FORMER, _VERSION):
        raise StoreFormatError(
            f"consumer state of version {version}, this reads {_FORMER} and {_VERSION}"
        )
    _, delivered_consumer, delivered_stream, floor_consumer, floor_stream = _HEAD.unpack_from(
        snapshot
    )
    offset = _HEAD.size
    (size,) = _COUNT.unpack_from(snapshot, offset)
    offset += _COUNT.size
    flat = unpack_from(f"<{size * 4}Q", snapshot, offset)
    offset += size * 32
    (lasts_size,) = _COUNT.unpack_from(snapshot, offset)
    offset += _COUNT.size
    lasts = list(unpack_from(f"<{lasts_size}Q", snapshot, offset))
    offset += lasts_size * 8
    stamp_ns, dead = 0, dict[int, int]()
    if version != _FORMER:
        (stamp_ns,) = _U64.unpack_from(snapshot, offset)
        offset += _U64.size
        (size,) = _COUNT.unpack_from(snapshot, offset)
        dead = _read_pairs(snapshot, offset + _COUNT.size, size)
    pending = {
        flat[at]: (flat[at + 1], flat[at + 2], flat[at + 3]) for at in range(0, len(flat), 4)
    }
    position = [delivered_consumer, delivered_stream, floor_consumer, floor_stream, stamp_ns]
    for delta in deltas:
        _apply(delta, pending, dead, position)
    if loose:
        pending = _apply_loose(loose, pending, dead, position)
    state.reset(1)
    state.delivered_consumer, state.delivered_stream = position[0], position[1]
    state.delivered_stamp_ns = position[4]
    state.floor_consumer, state.floor_stream = position[2], position[3]
    state.next_seq = position[1] + 1
    state.dead.update(dead)

    def own(deadline_ns: int) -> int:
        return deadline_ns - wall_offset_ns - (lead_ns if deadline_ns > latest_ns else 0)

    state.restore_pending(
        (sequence, consumer_seq, own(deadline_ns), count)
        for sequence, (consumer_seq, deadline_ns, count) in pending.items()
    )
    return [sequence for sequence in lasts if sequence > position[1]]


def _apply_loose(
    loose: Sequence[bytes],
    pending: dict[int, tuple[int, int, int]],
    dead: dict[int, int],
    position: list[int],
) -> dict[int, tuple[int, int, int]]:
    """Play deltas that do not follow; returns what of ``pending`` is left.

    Where the position stood between is not known: only the floor may move it.
    """
    later, spot = dict(pending), [0, 0, 0, 0, 0]
    for delta in loose:
        _apply(delta, later, dead, spot)
    floor = spot[3]
    if floor > position[1]:
        position[4] = 0
    position[0] = max(position[0], spot[0])
    position[1] = max(position[1], floor)
    position[2] = max(position[2], spot[2])
    position[3] = max(position[3], floor)
    return {seq: later[seq] for seq in pending if seq in later and seq > floor}


def _apply(
    delta: bytes,
    pending: dict[int, tuple[int, int, int]],
    dead: dict[int, int],
    position: list[int],
) -> None:
    """Play one delta on messages that are pending or given up, and on (delivered, floor, stamp) positions."""
    offset = 0
    while offset < len(delta):
        kind = delta[offset : offset + 1]
        if kind == b"N":
            _, consumer_seq, deadline_ns, size = _BATCH.unpack_from(delta, offset)
            offset += _BATCH.size
            for sequence in unpack_from(f"<{size}Q", delta, offset):
                pending[sequence] = (consumer_seq, deadline_ns, 1)
                position[0] = max(position[0], consumer_seq)
                position[1] = sequence
                consumer_seq += 1
            offset += size * 8
        elif kind == b"R":
            _, size = _MANY.unpack_from(delta, offset)
            offset += _MANY.size
            for sequence, consumer_seq, count, deadline_ns in _quadruples(delta, offset, size):
                first = pending.get(sequence, (consumer_seq, 0, 0))[0]
                pending[sequence] = (first, deadline_ns, count)
                position[0] = max(position[0], consumer_seq)
            offset += size * 32
        elif kind == b"T":
            _, size = _MANY.unpack_from(delta, offset)
            offset += _MANY.size
            flat = unpack_from(f"<{size * 2}Q", delta, offset)
            for sequence, deadline_ns in zip(flat[::2], flat[1::2], strict=True):
                if sequence in pending:
                    consumer_seq, _, count = pending[sequence]
                    pending[sequence] = (consumer_seq, deadline_ns, count)
            offset += size * 16
        elif kind == b"D":
            _, size = _MANY.unpack_from(delta, offset)
            offset += _MANY.size
            for sequence in unpack_from(f"<{size}Q", delta, offset):
                pending.pop(sequence, None)
                dead.pop(sequence, None)
            offset += size * 8
        elif kind == b"S":
            position[4] = _STAMP.unpack_from(delta, offset)[1]
            offset += _STAMP.size
        elif kind == b"X":
            _, size = _MANY.unpack_from(delta, offset)
            offset += _MANY.size
            for sequence, count in _read_pairs(delta, offset, size).items():
                pending.pop(sequence, None)
                dead[sequence] = count
            offset += size * 16
        else:
            _, consumer_seq, stream_seq = _PAIR.unpack_from(delta, offset)
            offset += _PAIR.size
            if kind == b"F":
                position[2:4] = [consumer_seq, stream_seq]
            elif kind == b"P":
                position[:4] = [consumer_seq, stream_seq, consumer_seq, stream_seq]
            else:
                raise StoreFormatError(f"unknown entry {kind!r} in a consumer's journal")


def _read_pairs(data: bytes, offset: int, size: int) -> dict[int, int]:
    flat = unpack_from(f"<{size * 2}Q", data, offset)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _quadruples(delta: bytes, offset: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    flat = unpack_from(f"<{size * 4}Q", delta, offset)
    return zip(*[iter(flat)] * 4, strict=True)


def backup_of(state: DeliveryState, wall_offset_ns: int, last_seq: int) -> ConsumerState:
    """A state in a backup's words. ``wall_offset_ns`` is wall-clock minus the state's own time."""
    pending = [sequence for sequence in state.pending if sequence <= last_seq]
    # What left the stream undelivered moved the floor alone, and no state is said to be before its floor.
    reached = max(state.delivered_stream, state.floor_stream)
    return ConsumerState(
        (state.delivered_consumer, min(reached, last_seq)),
        (state.floor_consumer, min(state.floor_stream, last_seq)),
        {s: Delivery(state.pending[s][0], state.delivered_ns(s) + wall_offset_ns) for s in pending},
        {s: state.count_of(s) - 1 for s in pending if state.count_of(s) > 1}
        | {s: count for s, count in state.dead.items() if s <= last_seq},
    )


def snapshot_of_backup(
    own: DeliveryState, name: str, given: ConsumerState, store: StreamStore
) -> bytes:
    """What a new consumer's journal would say, had it come to ``given``; for ``Consumer.restore``.

    Deliveries of messages the stream no longer has are over. Raises SnapshotFormatError.
    """
    check_backup(given, name)
    state = DeliveryState(
        start_seq=1,
        tracks=own.tracks,
        ack_wait_ns=own.ack_wait_ns,
        backoff_ns=own.backoff_ns,
        max_deliver=own.max_deliver,
    )
    state.delivered_consumer, state.delivered_stream = given.delivered
    state.floor_consumer, state.floor_stream = given.ack_floor
    counts = {seq: given.redelivered.get(seq, 0) + 1 for seq in given.pending}
    state.restore_pending(
        (seq, place.consumer_seq, place.delivered_ns + state.wait_ns(counts[seq]), counts[seq])
        for seq, place in given.pending.items()
    )
    state.dead.update((s, n) for s, n in given.redelivered.items() if s not in given.pending)
    known = [*given.pending, *state.dead]
    there = set(store.present(sorted(known)))
    state.forget(sequence for sequence in known if sequence not in there)
    return encode_snapshot(state, 0, [])


def check_backup(given: ConsumerState, name: str) -> None:
    """Refuse a state that no consumer can be in. Raises SnapshotFormatError."""
    delivered, floor = given.delivered, given.ack_floor
    numbers = [*delivered, *floor, *given.pending, *given.redelivered, *given.redelivered.values()]
    for place in given.pending.values():
        numbers += place
    in_range = all(0 <= number <= _SEQUENCE_MAX for number in numbers)
    in_order = floor[0] <= delivered[0] and floor[1] <= delivered[1]
    placed = all(
        floor[1] < sequence <= delivered[1] and place.consumer_seq <= delivered[0]
        for sequence, place in given.pending.items()
    )
    if not (in_range and in_order and placed):
        raise SnapshotFormatError(f"the state of consumer {name!r} contradicts itself")
