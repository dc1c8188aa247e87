"""A consumer's state as backups have it: taken out of one consumer, and put into another.

Deliveries keep their numbers and the time of the last one; the deadline follows from that. Which of them were
refused, and the messages a ``last_per_subject`` consumer began with, are not told: what a client refused is
delivered again when its time is over, and such a consumer goes on behind what it was given.
"""

from __future__ import annotations

from .....snapshots.contents import ConsumerState, Delivery, SnapshotFormatError
from ...ports.storage import StreamStore
from . import journal
from .consumer import Consumer
from .delivery_state import DeliveryState

_SEQUENCE_MAX = (1 << 63) - 1


def state_of(consumer: Consumer, last_seq: int) -> ConsumerState:
    """Where a consumer is, as far as the stream up to ``last_seq`` goes."""
    clock = consumer.context.clock
    return described(consumer.state, clock.now_ns() - clock.monotonic_ns(), last_seq)


def described(state: DeliveryState, wall_offset_ns: int, last_seq: int) -> ConsumerState:
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


def snapshot_of(consumer: Consumer, given: ConsumerState, store: StreamStore) -> bytes:
    """What a new consumer's journal would say, had it come to ``given``; for ``Consumer.restore``.

    Deliveries of messages the stream no longer has are over. Raises SnapshotFormatError.
    """
    check(given, consumer.name)
    own = consumer.state
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
    return journal.encode_snapshot(state, 0, [])


def check(given: ConsumerState, name: str) -> None:
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
