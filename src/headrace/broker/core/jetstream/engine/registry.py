"""The streams of an engine and their life: create, recover, update, delete, with their journal entries.

``Recovery`` brings streams and consumers back from the journal, whatever is missing from it. What the
journal lacks, the storage has filled in from its second copies as far as it could. What is left to decide:
what to make of a stream without a directory, a directory without a stream, a consumer without its state.
Nothing is skipped, nothing comes back in part, and whatever is amiss is noted.

``LostStreams`` are on the disk and cannot be served: their names are reserved, and say why. Either nothing
tells their configuration any more, or their directory cannot be used. STREAM.UPDATE gives a configuration
back to one that has none, STREAM.DELETE removes what there is, and nobody else touches it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from .....api.base import from_wire, to_wire
from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....documents import read_json
from .....errors import StoreError, StoreFormatError, StoreFullError
from ...ports import StreamStore
from ..api.dispatcher import Usage
from ..config.options import Refused
from ..consumer.acks import AckDispatch
from ..consumer.consumer import Consumer, ConsumerMarks
from ..consumer.delivery_state import Entry
from ..consumer.pull_path import PullPath
from ..context import Context
from ..headers import expires_at
from ..publish.duplicate_window import LEFT_IDS
from ..sourcing.copies import Copies
from ..sourcing.positions import POSITIONS
from ..stream.stream import Stream, StreamMarks
from ..tick.removals import Disposal

STREAM: Final = "stream/"
CONSUMER: Final = "consumer/"
STATE: Final = "state/"
RESTORING: Final = "restoring/"
"""A stream that was being restored: what there is of it goes with the next start."""
_WAYS: Final = "STREAM.UPDATE with a configuration brings it back, STREAM.DELETE removes it"


class LostStreams:
    """The names that are taken by what cannot be served, and why."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.reasons: dict[str, str] = {}
        self._remnants: set[str] = set()

    @property
    def names(self) -> set[str]:
        """All of them, remnants included."""
        return {*self.reasons, *self._remnants}

    def add(self, name: str, why: str) -> None:
        """A stream that cannot be served, until it is removed or found."""
        self.reasons[name] = why

    def add_remnant(self, name: str) -> None:
        """What is left of a creation that was cut off: nobody was told of it, it makes room if need be."""
        self._remnants.add(name)

    def found(self, name: str) -> None:
        """It is served again."""
        self.reasons.pop(name, None)

    def check(self, name: str) -> None:
        """Make room for a new stream of this name. Raises StoreError if one is lost."""
        why = self.reasons.get(name)
        if why is not None:
            raise StoreError(f"the name {name!r} is taken: {why}")
        if name in self._remnants:
            self._context.storage.delete_stream(name)
            self._remnants.discard(name)

    def remove(self, name: str) -> None:
        """Remove what there is of a lost stream. Raises StoreError."""
        storage = self._context.storage
        for key in keys_of(name, storage.meta.load()):
            storage.meta.delete(key)
        if name in storage.barred() or name in storage.streams():
            storage.delete_stream(name)
        del self.reasons[name]
        self._context.barrier.want()

    def created_ns(self, name: str) -> int:
        """When a lost stream was made, as its consumers remember; 0 if they do not."""
        for key, (value, _) in self._context.storage.meta.load().items():
            if key.startswith(f"{CONSUMER}{name}/"):
                created_ns = read_json(value).get("stream_ns", 0)
                if created_ns:
                    return int(created_ns)
        return 0


def keys_of(name: str, journal: Iterable[str]) -> list[str]:
    """The keys of a stream, its own first."""
    own = (POSITIONS + name, LEFT_IDS + name)
    parts = (f"{CONSUMER}{name}/", f"{STATE}{name}/")
    return [STREAM + name, *(k for k in journal if k in own or k.startswith(parts))]


Journal = Mapping[str, tuple[bytes, list[bytes]]]


class Recovery:
    """One recovery of an engine's streams and consumers."""

    def __init__(self, context: Context, registry: Registry) -> None:
        self._context = context
        self._storage = context.storage
        self._registry = registry
        self._journal: Journal = {}

    def run(self) -> Journal:
        """Open everything; returns what the journal held. Raises StoreError if the storage fails."""
        self._half_restored()
        self._journal = dict(self._storage.meta.load())
        for name, what in self._storage.barred().items():
            self._lose(name, f"{what}; put its directory back and start again, or STREAM.DELETE it")
        for key, (value, _) in self._journal.items():
            if key.startswith(STREAM):
                self._stream(key.removeprefix(STREAM), value)
        for key in self._journal:
            if key.startswith(CONSUMER):
                self._consumer(key)
        self._directories()
        self._leftovers()
        if self._storage.meta.staged:  # if only copies that were missing
            self._context.barrier.want_soon()
        return self._journal

    def consumers_of(self, stream: Stream) -> None:
        """Open the consumers of a stream that has come back."""
        self._journal = dict(self._storage.meta.load())
        for key in self._journal:
            if key.startswith(f"{CONSUMER}{stream.name}/"):
                self._consumer(key)

    # -- streams

    def _half_restored(self) -> None:
        """A restore was cut off: nobody was told that there is such a stream."""
        storage = self._storage
        for key in [key for key in storage.meta.load() if key.startswith(RESTORING)]:
            name = key.removeprefix(RESTORING)
            self._forget(name)
            if name in storage.streams():
                storage.delete_stream(name)
            storage.meta.delete(key)
            storage.note("a restore was cut off: nothing of it is kept", name)

    def _stream(self, name: str, value: bytes) -> None:
        if name in self._registry.lost.reasons:
            return
        entry = read_json(value)
        config = from_wire(entry["config"], StreamConfig)
        try:
            self._registry.open_stream(config, entry["created_ns"])
        except (StoreFormatError, StoreFullError):
            raise
        except StoreError as error:
            if name in self._storage.streams():
                self._lose(
                    name, f"its directory {self._storage.location(name)} is unreadable: {error}"
                )
            else:
                # Its directory leaves before a deletion is answered: the record of that is what is lost.
                self._storage.note("there is no directory: the stream was deleted", name)
                self._forget(name)

    def _directories(self) -> None:
        """Look at what the storage has and the journal does not."""
        storage, lost = self._storage, self._registry.lost
        for name in storage.streams():
            if name in self._registry.streams or name in lost.reasons:
                continue
            if storage.meta.was_deleted(STREAM + name):
                self._forget(name)  # the deletion was cut off when it was decided
                storage.delete_stream(name)
            elif storage.is_unfinished(name) or self._is_empty(name):
                lost.add_remnant(name)
            else:
                where = storage.location(name)
                self._lose(name, f"its messages are in {where}, its configuration is lost; {_WAYS}")

    def _is_empty(self, name: str) -> bool:
        """Whether there never was a message in it."""
        try:
            return not self._storage.open_stream(name).last_seq
        except (StoreFormatError, StoreFullError):
            raise
        except StoreError:
            return False

    def _lose(self, name: str, why: str) -> None:
        self._registry.lost.add(name, why)
        self._storage.note(f"the stream is not served: {why}", name)

    def _forget(self, name: str) -> None:
        for key in keys_of(name, self._storage.meta.load()):
            self._storage.meta.delete(key)

    # -- consumers

    def _consumer(self, key: str) -> None:
        key = key.removeprefix(CONSUMER)
        stream_name, _, name = key.partition("/")
        stream = self._registry.streams.get(stream_name)
        if stream is None:
            return  # see ``_leftovers``
        meta = self._storage.meta
        state = self._journal.get(STATE + key)
        entry = read_json(self._journal[CONSUMER + key][0])
        loose = meta.loose(STATE + key)
        if entry.get("stream_ns", stream.created_ns) != stream.created_ns:
            self._drop(
                stream_name, key, f"consumer {name!r} was one of a deleted stream of this name"
            )
            return
        if state is None and not loose and meta.was_deleted(STATE + key):
            self._drop(stream_name, key, f"the deletion of consumer {name!r} was completed")
            return
        if state is None or loose:
            what = f"part of the state of consumer {name!r} is lost: it goes on from an older one, "
            self._storage.note(what + "so that messages may be delivered again", stream_name)
        config = from_wire(entry["config"], ConsumerConfig)
        self._registry.open_consumer(stream, name, config, entry["created_ns"], state)

    def _drop(self, stream: str, key: str, what: str) -> None:
        self._storage.note(what, stream)
        self._storage.meta.delete(CONSUMER + key)
        self._storage.meta.delete(STATE + key)

    def _leftovers(self) -> None:
        """Forget what belongs to nothing, so that it does not come back with the next of its name."""
        meta, lost = self._storage.meta, self._registry.lost.reasons
        left = dict(meta.load())
        for key in left:
            for kind in (CONSUMER, STATE, POSITIONS, LEFT_IDS):
                if not key.startswith(kind):
                    continue
                whose = key.removeprefix(kind)
                name = whose.partition("/")[0]
                gone = name not in self._registry.streams
                if name not in lost and (gone or (kind == STATE and CONSUMER + whose not in left)):
                    meta.delete(key)


class Registry:
    """Streams by name, consumers by stream; what is here is journaled, except what lives in memory."""

    def __init__(self, context: Context, acks: AckDispatch, pulls: PullPath) -> None:
        self._context = context
        self._acks = acks
        self._pulls = pulls
        self.streams: dict[str, Stream] = {}
        self.making: dict[str, tuple[StreamConfig, StreamStore | None]] = {}
        """Streams that are being restored: their messages take room, and nobody sees them."""
        self.lost = LostStreams(context)
        self.stream_marks = StreamMarks()
        self.consumer_marks = ConsumerMarks()
        self._closed: list[Consumer] = []  # in this tick
        self.copies = Copies(context, self.streams, self._restart)

    # -- streams

    def create_stream(self, config: StreamConfig) -> Stream:
        """Make a stream of a checked configuration."""
        context = self._context
        try:
            if config.name in self.making:
                raise StoreError(f"stream {config.name!r} is being restored")
            self.lost.check(config.name)
            store = context.storage.create_stream(config.name, memory=config.storage == "memory")
        except StoreError as error:
            raise Refused(Errors.STREAM_CREATE, err=error) from error
        if config.first_seq > 1:
            store.reset_first(config.first_seq)
        created_ns = context.clock.now_ns()
        stream = Stream(context, config, created_ns, store, self.stream_marks)
        self.streams[config.name] = stream
        self._journal_stream(stream)
        context.barrier.paced.count(directory=False)
        stream.open()
        self.copies.opened(stream)
        context.advisories.stream(config.name, "create")
        return stream

    def update_stream(self, stream: Stream, config: StreamConfig) -> None:
        """Give a stream a checked configuration."""
        interest_matters = stream.config.retention != config.retention
        stream.reconfigure(config)
        if interest_matters:
            for consumer in stream.consumers.values():
                consumer.acks.configure()
            stream.retention.consumers_changed()
        self._journal_stream(stream)
        self.copies.changed(stream)
        self._context.advisories.stream(stream.name, "modify")

    def delete_stream(self, stream: Stream) -> None:
        """Remove a stream, its consumers and its messages."""
        context = self._context
        # First, so that a torn write does not leave the stream without its consumers.
        context.storage.meta.delete(STREAM + stream.name)
        self._close(stream)
        self.stream_marks.appended.pop(stream, None)
        self.stream_marks.left.pop(stream, None)
        if LEFT_IDS + stream.name in context.storage.meta.load():
            context.storage.meta.delete(LEFT_IDS + stream.name)
        context.storage.delete_stream(stream.name)
        context.barrier.paced.count(directory=stream.config.storage == "file")
        context.barrier.want(Disposal(context.disposals, stream.store, stream.let_go))
        context.advisories.stream(stream.name, "delete")
        stream.forget_subjects()

    def _close(self, stream: Stream) -> None:
        stream.close()
        for consumer in list(stream.consumers.values()):
            self._drop_consumer(consumer)
        del self.streams[stream.name]
        self.copies.closed(stream)

    def take_in(self, stream: Stream) -> None:
        """A stream whose store was filled by a restore: it is one of ours from now on."""
        self.streams[stream.name] = stream
        stream.recover()
        self._journal_stream(stream)
        self.copies.recovered(stream, None)

    def make_consumer(
        self, stream: Stream, name: str, config: ConsumerConfig, created_ns: int
    ) -> Consumer:
        """A consumer that nobody sees yet."""
        consumer = Consumer(self._context, stream, name, config, created_ns, self.consumer_marks)
        consumer.on_inactive = self.delete_consumer
        return consumer

    def take_in_consumer(self, stream: Stream, consumer: Consumer) -> None:
        """A consumer of a stream that is taken in, restored and journaled: it goes on from where it was."""
        consumer.resume()
        self._admit(stream, consumer)
        self._context.advisories.consumer(consumer, "create")

    def _journal_stream(self, stream: Stream) -> None:
        if stream.config.storage == "file":
            value = {"created_ns": stream.created_ns, "config": to_wire(stream.config)}
            meta = self._context.storage.meta
            meta.keep_beside(STREAM + stream.name, stream.name)
            meta.put(STREAM + stream.name, msgspec.json.encode(value))
        self._context.barrier.want()

    # -- consumers

    def create_consumer(self, stream: Stream, name: str, config: ConsumerConfig) -> Consumer:
        """Make a consumer of a checked configuration."""
        created_ns = self._context.clock.now_ns()
        consumer = self.make_consumer(stream, name, config, created_ns)
        try:
            consumer.start()
        except StoreError:
            consumer.close()
            self._closed.append(consumer)
            raise
        self._admit(stream, consumer)
        self.consumer_marks.new[consumer] = None
        self.journal_consumer(consumer)
        advisories = self._context.advisories
        advisories.consumer(consumer, "create")
        if consumer.is_paused(self._context.clock.now_ns()):
            advisories.paused(consumer, consumer.pause.until_ns)
        return consumer

    def journal_consumer(self, consumer: Consumer) -> None:
        """Write a consumer's configuration and state anew."""
        if consumer.journaled:
            value = {
                "created_ns": consumer.created_ns,
                "stream_ns": consumer.stream.created_ns,
                "config": to_wire(consumer.config),
            }
            meta = self._context.storage.meta
            self._keep_beside(consumer)
            meta.put(CONSUMER + consumer.key, msgspec.json.encode(value))
            meta.put(STATE + consumer.key, consumer.snapshot())
        self._context.barrier.want()

    def _keep_beside(self, consumer: Consumer) -> None:
        if consumer.journaled:
            for kind in (CONSUMER, STATE):
                self._context.storage.meta.keep_beside(kind + consumer.key, consumer.stream.name)

    def restart_consumer(self, consumer: Consumer, sequence: int) -> None:
        """Have a consumer forget every delivery, and go on at a sequence."""
        consumer.restart_at(sequence)
        self.journal_consumer(consumer)

    def _restart(self, stream: Stream, name: str, sequence: int) -> None:
        self.restart_consumer(stream.consumers[name], sequence)

    def delete_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; its waiting requests are told.

        What it has acknowledged leaves a work queue first. Raises StoreReadError when that cannot be done
        now, and then nothing has changed.
        """
        if consumer.stream.config.retention == "workqueue":  # else a walk finds what may go
            consumer.acks.report()
        self._drop_consumer(consumer)
        consumer.stream.retention.consumers_changed()

    def _admit(self, stream: Stream, consumer: Consumer) -> None:
        stream.consumers[consumer.name] = consumer
        if consumer.config.ack_policy not in ("none", "flow_control"):
            self._acks.add(stream.name, consumer.name, consumer.acks)
        self._pulls.add(stream.name, consumer.name, consumer.pulls)
        self.copies.consumer_came(stream, consumer.name)

    def _drop_consumer(self, consumer: Consumer) -> None:
        consumer.close()
        self._closed.append(consumer)
        stream = self.streams[consumer.stream.name]
        del stream.consumers[consumer.name]
        self._acks.remove(stream.name, consumer.name)
        self._pulls.remove(stream.name, consumer.name)
        self.copies.consumer_left(stream, consumer.name)
        self._context.advisories.consumer(consumer, "delete")
        if consumer.journaled and self._context.storage.failed is None:
            meta = self._context.storage.meta
            meta.delete(CONSUMER + consumer.key)
            meta.delete(STATE + consumer.key)
        self._context.barrier.want()

    def let_go(self) -> None:
        """Free the consumers that were deleted in the tick before."""
        closed, self._closed = self._closed, []
        for consumer in closed:
            consumer.let_go()

    def stage_consumers(self) -> None:
        """Hand the changes of consumers since the last flush to the journal.

        Once the store has failed they are dropped: a restart finds the consumers as they were then.
        """
        meta = self._context.storage.meta
        writable = self._context.storage.failed is None
        for consumer in self.consumer_marks.dirty:
            value, is_delta = consumer.changes()
            if not consumer.journaled or not writable:
                continue
            if is_delta:
                meta.append(STATE + consumer.key, value)
            else:
                meta.put(STATE + consumer.key, value)
        self.consumer_marks.dirty.clear()

    # -- recovery

    def recover(self) -> None:
        """Open what the journal and the storage hold. Raises StoreError."""
        journal = Recovery(self._context, self).run()
        for stream in self.streams.values():
            saved = journal.get(POSITIONS + stream.name)
            self.copies.recovered(stream, saved[0] if saved is not None else None)
        self.copies.all_recovered()
        for stream in self.streams.values():
            stream.open()

    def open_stream(self, config: StreamConfig, created_ns: int) -> Stream:
        """Read a stream that the storage has. Raises StoreError, and then nothing has changed."""
        storage = self._context.storage
        store = storage.open_stream(config.name, expires_at)
        stream = Stream(self._context, config, created_ns, store, self.stream_marks)
        stream.recover()
        self.streams[config.name] = stream
        storage.meta.keep_beside(STREAM + config.name, config.name)
        return stream

    def open_consumer(
        self,
        stream: Stream,
        name: str,
        config: ConsumerConfig,
        created_ns: int,
        state: tuple[bytes, list[bytes]] | None,
    ) -> None:
        """Take up a consumer where the journal left it, or where nothing is skipped."""
        consumer = self.make_consumer(stream, name, config, created_ns)
        meta = self._context.storage.meta
        loose = meta.loose(STATE + consumer.key)
        snapshot, deltas = state if state is not None else (None, [])
        consumer.restore(snapshot, deltas, loose)
        warning, is_changed = consumer.reconcile()
        if warning:
            self._context.storage.note(warning, stream.name)
        consumer.resume()
        self._admit(stream, consumer)
        if snapshot is None or loose or is_changed:
            self.journal_consumer(consumer)
        else:
            self._keep_beside(consumer)

    def adopt_stream(self, config: StreamConfig) -> Stream:
        """Give a lost stream this checked configuration, and take up what lies on the disk."""
        context = self._context
        try:
            created_ns = self.lost.created_ns(config.name) or context.clock.now_ns()
            stream = self.open_stream(config, created_ns)
        except StoreError as error:
            raise Refused(Errors.STREAM_UPDATE, err=error) from error
        self.lost.found(config.name)
        self._journal_stream(stream)
        Recovery(context, self).consumers_of(stream)
        stream.open()
        self.copies.opened(stream)
        context.advisories.stream(config.name, "create")
        return stream

    def drop_lost(self, name: str) -> None:
        """Remove a lost stream: what the journal has of it, and what is in its place."""
        try:
            self.lost.remove(name)
        except StoreError as error:
            raise Refused(Errors.STREAM_DELETE, err=error) from error

    def take_back(
        self,
        removed: Mapping[Stream, Sequence[int]],
        forgotten: Mapping[Consumer, Sequence[Entry]],
        new: Collection[Consumer],
    ) -> None:
        """A flush failed: follow the storage back to what it still has.

        A stream whose creation was in it is no more, even if another of its name is back. One whose
        deletion was in it is deleted again: its configuration is gone already. ``removed`` are messages
        nobody needs, by stream; ``forgotten`` are deliveries that were over because their messages had
        left the stream. ``new`` consumers were made since the last flush that succeeded: where they
        begin was told by what is no more.
        """
        storage = self._context.storage
        there = set(storage.streams())
        for stream in list(self.streams.values()):
            if storage.holds(stream.name, stream.store):
                stream.roll_back(removed.get(stream, ()))
                for consumer in stream.consumers.values():
                    if consumer in new:
                        consumer.unread.attempt(partial(self._start_anew, consumer))
                    self._look_again(consumer, forgotten.get(consumer, ()))
                continue
            self._close(stream)
            if storage.failed is None:
                storage.meta.delete(STREAM + stream.name)
        if storage.failed is None:
            for name in there.difference(self.streams, self.lost.names):
                storage.delete_stream(name)
                self._context.barrier.want_soon()

    def _start_anew(self, consumer: Consumer) -> None:
        """A consumer began where the stream is not any more: it begins again."""
        if consumer.state.delivered_consumer == 0:
            consumer.start()
            if consumer.journaled and self._context.storage.failed is None:
                self.journal_consumer(consumer)

    def _look_again(self, consumer: Consumer, forgotten: Sequence[Entry]) -> None:
        """Messages may be back that a consumer had passed over, or had in hand."""
        floor = consumer.state.floor_stream
        if forgotten:
            consumer.acks.remember(forgotten)
        consumer.look_again()
        changed = forgotten or consumer.state.floor_stream != floor
        if changed and consumer.journaled and self._context.storage.failed is None:
            self.journal_consumer(consumer)  # the journal has been told otherwise

    # -- questions

    def mirror_of(self, name: str) -> Stream | None:
        """A mirror that may answer Direct Gets for a stream that is away."""
        return self.copies.mirror_of(name)

    def usage(self) -> Usage:
        """What the streams use and reserve."""
        used = {"memory": 0, "file": 0}
        reserved = {"memory": 0, "file": 0}
        for stream in self.streams.values():
            used[stream.config.storage] += stream.store.bytes
            reserved[stream.config.storage] += max(stream.config.max_bytes, 0)
        for config, store in self.making.values():
            used[config.storage] += store.bytes if store is not None else 0
            reserved[config.storage] += max(config.max_bytes, 0)
        consumers = sum(len(stream.consumers) for stream in self.streams.values())
        return Usage(used["memory"], used["file"], reserved["memory"], reserved["file"], consumers)

    def reserved(self, storage: str) -> int:
        """What the streams of this storage reserve: asked for each stream that is made."""
        configs = [stream.config for stream in self.streams.values()]
        configs += [config for config, _ in self.making.values()]
        return sum([c.max_bytes for c in configs if c.max_bytes > 0 and c.storage == storage])
