"""The engine: wires the parts together and works through what a tick has marked.

The hub calls ``end_of_tick`` after a round of input; timers and completed flushes do the same work for
what they have marked. Nothing here waits, sleeps or reads a clock of its own.

A ``Quota`` says what an account may store, and the ``ServerStore`` what all accounts may store together.
Limits are checked when a stream is made or changed (what it reserves) and when a message is published
(what is used). Usage is counted once per tick in which a limit matters, and added to within the tick: an
account without limits on a server without limits pays one look at a boolean per stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from .....api.base import to_wire
from .....api.consumers import ConsumerInfo
from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamConfig, StreamInfo
from .....clock import Clock
from .....errors import StoreError, StoreReadError
from .....wire.frames import Frame
from ...options import JetStreamLimits
from ...ports import Bus, Origin, Randomness, Sink, Storage
from ...timers import TimerQueue
from ..api.consumers import ConsumersApi, consumer_info
from ..api.direct_get import DIRECT, DirectGet, DirectRuns
from ..api.dispatcher import ApiDispatcher, RefusedApi, Usage
from ..api.messages import MessageRuns, MessagesApi
from ..api.snapshots import SnapshotsApi
from ..api.streams import StreamsApi, stream_info
from ..config.options import JetStreamOptions, Refused
from ..consumer.acks import AckDispatch
from ..consumer.consumer import Consumer
from ..consumer.delivery_state import Entry
from ..consumer.pull_path import PullPath
from ..consumer.push import FLOW, FlowDispatch
from ..context import Context
from ..stream.stream import Stream
from ..tick.flush_barrier import Commits, FlushBarrier
from .registry import Registry
from .restores import Restores

_RECORD_BYTES: Final = 30  # what nats-server counts for a message beside its content
_API: Final = b"$JS.API.>"
_ACK: Final = b"$JS.ACK.>"
_SERVING_NS: Final = 5_000_000  # for deliveries in one tick


class ServerStore:
    """What the streams of all accounts use together, and may."""

    def __init__(self, max_memory: int = -1, max_storage: int = -1) -> None:
        self.max_memory = max_memory
        self.max_storage = max_storage
        self.members: list[Registry] = []

    def used(self, storage: str) -> int:
        """Bytes used by every account."""
        return sum(_used(member.usage(), storage) for member in self.members)

    def reserved(self, storage: str) -> int:
        """Bytes reserved by the ``max_bytes`` of every stream."""
        return sum(member.reserved(storage) for member in self.members)

    def most(self, storage: str) -> int:
        return self.max_memory if storage == "memory" else self.max_storage


class Quota:
    """One account's limits, asked by its streams."""

    def __init__(
        self, registry: Registry, limits: JetStreamLimits, server: ServerStore | None = None
    ) -> None:
        self._registry = registry
        self._server = server or ServerStore()
        self._server.members.append(registry)
        self.limits = limits
        self._counts: dict[tuple[str, str], int] = {}

    def new_tick(self) -> None:
        if self._counts:
            self._counts.clear()

    def bounds(self, storage: str) -> bool:
        """Whether what is published into a stream of this storage has to be admitted."""
        return self._most(storage) >= 0 or self._server.most(storage) >= 0

    def check_stream(self, config: StreamConfig, before: StreamConfig | None = None) -> None:
        """Refuse a stream that reserves more than there is; ``before`` is what it was."""
        wanted, limits = config.max_bytes, self.limits
        storage = config.storage
        if wanted <= 0 and limits.max_bytes_required:
            raise Refused(Errors.STREAM_MAX_BYTES_REQUIRED)
        per_stream = limits.max_stream_memory if storage == "memory" else limits.max_stream_storage
        if 0 < per_stream < wanted:
            raise Refused(Errors.STREAM_MAX_BYTES_EXCEEDED)
        if 0 < limits.max_consumers < config.max_consumers:
            raise Refused(Errors.MAX_CONSUMERS)
        already = 0 if before is None else max(before.max_bytes, 0)
        if wanted <= already and before is not None:
            return
        wanted = wanted if wanted > 0 else 1  # a stream of any size needs a place, too
        more = wanted - already
        most, everywhere = self._most(storage), self._server.most(storage)
        if (-1 < most < self._registry.reserved(storage) + more) or (
            -1 < everywhere < self._server.reserved(storage) + more
        ):
            raise Refused(
                Errors.MEMORY_RESOURCES_EXCEEDED
                if storage == "memory"
                else Errors.STORAGE_RESOURCES_EXCEEDED
            )

    def admit(self, storage: str, content_bytes: int) -> None:
        """Refuse a message for which there is no room; else count it."""
        size = content_bytes + _RECORD_BYTES
        self._admit(
            "account", storage, size, self._most(storage), Errors.ACCOUNT_RESOURCES_EXCEEDED
        )
        server = self._server
        self._admit("server", storage, size, server.most(storage), Errors.INSUFFICIENT_RESOURCES)

    def _admit(self, whose: str, storage: str, size: int, most: int, refusal: ErrorSpec) -> None:
        if most < 0:
            return
        key = (whose, storage)
        used = self._counts.get(key)
        if used is None:
            used = self._count(whose, storage)
        if used + size > most:
            self._counts[key] = used
            raise Refused(refusal)
        self._counts[key] = used + size

    def _count(self, whose: str, storage: str) -> int:
        if whose == "server":
            return self._server.used(storage)
        return _used(self._registry.usage(), storage)

    def _most(self, storage: str) -> int:
        return self.limits.max_memory if storage == "memory" else self.limits.max_storage


def _used(usage: Usage, storage: str) -> int:
    return usage.memory_bytes if storage == "memory" else usage.storage_bytes


class JetStream:
    """Streams and consumers on one bus and one storage."""

    def __init__(
        self,
        bus: Bus,
        storage: Storage,
        clock: Clock,
        random: Randomness,
        timers: TimerQueue,
        options: JetStreamOptions | None = None,
        commits: Commits | None = None,
        server: ServerStore | None = None,
    ) -> None:
        """``commits`` and ``server`` are for engines that share a storage, with names of their own."""
        context = Context(bus, storage, clock, random, timers, options or JetStreamOptions())
        self._context = context
        self._acks = AckDispatch()
        pulls = PullPath(self._acks)
        self.registry = Registry(context, self._acks, pulls)
        self.copies = self.registry.copies
        commits = commits or Commits(storage, clock, timers)
        context.barrier = FlushBarrier(bus, commits, clock, timers, self._stage, self._completed)
        self._barrier = context.barrier
        context.quota = self._quota = Quota(self.registry, context.options.limits, server)
        self._streams = self.registry.stream_marks
        self._consumers = self.registry.consumer_marks
        self._flushing: dict[Stream, None] = {}
        self._removing: dict[Stream, list[int]] = {}
        self._forgetting: dict[Consumer, list[Entry]] = {}
        self._new: dict[Consumer, None] = {}
        self._turn_asked = False
        self._api = ApiDispatcher(context, self._streams)
        streams = StreamsApi(context, self.registry, self._api)
        self.account_info = streams.account_info
        MessagesApi(self.registry, self._api)
        DirectGet(context, self.registry, self._api)
        ConsumersApi(context, self.registry, self._api)
        self._api.add_raw("CONSUMER.MSG.NEXT", pulls.sink)
        RefusedApi(self._api)
        restores = Restores(context, self.registry)
        SnapshotsApi(context, self.registry, self._api, streams, restores)
        self.message_runs = MessageRuns(context, self.registry, self._api, self._streams)
        self.direct_runs = DirectRuns(context, self.registry)
        pulls.request_sink, pulls.ack_sink = self._api.sink, self._acks.sink
        bus.add_sink(_API, pulls.request_sink, self._take_requests, heavy=True)
        bus.add_sink(_ACK, pulls.ack_sink, self._acks.many)
        bus.short_way = pulls
        bus.add_sink(FLOW, FlowDispatch(self.registry.streams).sink)
        bus.on_unblocked(self._unblocked)

    def _take_requests(self, publishes: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Answer the requests at the front that have their quick way; returns what is left."""
        is_direct = publishes[0][1].startswith(DIRECT)
        return (self.direct_runs if is_direct else self.message_runs).take(publishes, origin)

    def recover(self) -> None:
        """Open the streams and consumers the storage holds. Raises StoreError."""
        self.registry.recover()

    def stand_in(self, bus: Bus) -> Sink:
        """A handler of ``$JS.API.>`` for an account without JetStream, which says so."""
        return self._api.stand_in(bus)

    def work(self) -> None:
        """Work through what was marked in a tick: copies, limits, deliveries."""
        self.registry.let_go()
        self._quota.new_tick()
        if self.copies.ready:
            self.copies.copy_some()
        if self._streams.dirty:
            streams, self._streams.dirty = self._streams.dirty, []
            for stream in streams:
                try:
                    stream.end_of_batch()
                except (StoreError, OSError) as error:
                    stream.unread.failed(error, stream.arm)
        if self._consumers.ready or self._consumers.later:
            self._serve()

    def report(self) -> None:
        """Tell the streams what their consumers are done with, once per tick; after ``work``."""
        if self._consumers.to_report:
            self._report()

    def flush(self) -> None:
        """One flush for all that was changed; after ``report``."""
        self._barrier.flush()

    def reconfigure(self, options: JetStreamOptions) -> None:
        """Other limits: for what is made and published from here on."""
        context = self._context
        context.options = options
        self._quota.limits = options.limits
        for stream in self.registry.streams.values():
            stream.reconfigure(stream.config)

    def shutdown(self) -> None:
        """Tell every waiting pull request that the server goes, and commit what is staged."""
        for stream in self.registry.streams.values():
            for consumer in stream.consumers.values():
                consumer.shut_down()
        if self._consumers.dirty:
            self._barrier.want()
        self._barrier.flush()

    def snapshot(self) -> dict[str, Any]:
        """Numbers for monitoring: streams, consumers, messages, bytes, API calls."""
        usage = self.registry.usage()
        streams = self.registry.streams.values()
        return {
            "streams": len(streams),
            "consumers": usage.consumers,
            "messages": sum(stream.store.messages for stream in streams),
            "bytes": usage.storage_bytes + usage.memory_bytes,
            "memory": usage.memory_bytes,
            "storage": usage.storage_bytes,
            "reserved_memory": usage.reserved_memory_bytes,
            "reserved_storage": usage.reserved_storage_bytes,
            "api": {"total": self._api.total, "errors": self._api.errors},
        }

    def details(
        self,
        *,
        consumers: bool,
        config: bool,
        streams_max: int | None = None,
        consumers_max: int = 0,
        judge: Callable[[StreamInfo, list[ConsumerInfo]], None] | None = None,
    ) -> list[dict[str, Any]]:
        """The streams for monitoring; ``config`` shows configurations, too.

        With ``streams_max`` only so many streams, and of their consumers ``consumers_max`` together.
        ``judge`` is called with each stream of which all consumers are shown.
        """
        found: list[dict[str, Any]] = []
        for _, stream in islice(sorted(self.registry.streams.items()), streams_max):
            info = stream_info(stream, self._context, listed=True)
            detail = {**to_wire(info), "name": stream.name}
            detail.pop("domain", None)
            if consumers:
                shown = list(stream.consumers.values())
                if streams_max is not None:
                    shown = shown[: max(0, consumers_max)]
                    consumers_max -= len(shown)
                infos = list(map(_consumer_info, shown))
                detail["consumer_detail"] = [
                    to_wire(each) if isinstance(each, ConsumerInfo) else each for each in infos
                ]
                known = [each for each in infos if isinstance(each, ConsumerInfo)]
                if judge is not None and len(known) == len(stream.consumers):
                    judge(info, known)
            if not config:
                for document in (detail, *detail.get("consumer_detail", ())):
                    document.pop("config", None)
            found.append(detail)
        return found

    def _serve(self) -> None:
        """Give ready consumers a delivery pass each; those left over continue in the next turn."""
        context = self._context
        monotonic_ns = context.clock.monotonic_ns
        ends_ns = monotonic_ns() + _SERVING_NS
        ready, self._consumers.ready = self._consumers.ready, {}
        waiting = iter(ready)
        with self._consumers.reads:
            for consumer in waiting:
                try:
                    consumer.deliver()
                except (StoreError, OSError) as error:  # the others go on
                    consumer.unread.failed(error, consumer.try_again)
                if monotonic_ns() >= ends_ns:
                    self._consumers.later = {**dict.fromkeys(waiting), **self._consumers.later}
                    break
        if self._consumers.later and not self._turn_asked:
            self._turn_asked = True
            context.timers.call_at(context.clock.monotonic_ns(), self._next_turn)

    def _next_turn(self) -> None:
        self._turn_asked = False
        self._consumers.ready.update(self._consumers.later)
        self._consumers.later.clear()

    def _report(self) -> None:
        to_report, self._consumers.to_report = self._consumers.to_report, {}
        for consumer in to_report:
            try:
                consumer.acks.report()
            except (StoreError, OSError) as error:
                consumer.unread.failed(error, consumer.try_again)

    def _stage(self, is_whole: bool) -> None:
        """The last changes before a flush starts; if it is whole, those of consumers, too."""
        self.report()
        if is_whole:
            self.registry.stage_consumers()
        self.copies.stage()
        self._flushing, self._streams.appended = self._streams.appended, {}
        for stream in self._flushing:
            stream.flush_begins()
        left, self._streams.left = self._streams.left, {}
        for stream in left:
            stream.stage_left_ids()
        self._removing, self._streams.removed = self._streams.removed, {}
        self._forgetting, self._consumers.forgotten = self._consumers.forgotten, {}
        self._new, self._consumers.new = self._consumers.new, {}

    def _completed(self, error: Exception | None) -> None:
        """A flush is done: what it carried may be delivered; or it failed, and is taken back."""
        streams, self._flushing = self._flushing, {}
        removed, self._removing = self._removing, {}
        forgotten, self._forgetting = self._forgetting, {}
        new, self._new = self._new, {}
        if error is not None:
            new.update(self._consumers.new)
            self.registry.take_back(removed, forgotten, new)
        self.copies.completed(error)
        for stream in streams:
            try:
                stream.on_durable()
            except (StoreError, OSError) as error:
                stream.unread.failed(error, stream.arm)
        if self._consumers.ready:
            self._serve()

    def _unblocked(self) -> None:
        """Some receiver can take more: try all who stopped because of one."""
        for stream in self.registry.streams.values():
            stream.resume_blocked()


def _consumer_info(consumer: Consumer) -> ConsumerInfo | dict[str, Any]:
    """A consumer for monitoring; only who it is, while what it has to deliver cannot be counted."""
    try:
        return consumer_info(consumer, listed=True)
    except StoreReadError as error:
        return {"stream_name": consumer.stream.name, "name": consumer.name, "error": str(error)}
