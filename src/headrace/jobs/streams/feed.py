"""A feed: messages of a stream become messages of a channel, with their jobs, once and in order.

The id of such a message has the stream, the sequence and the time it was stored at, so a redelivery finds the
message stored already, and another message that is given the same sequence is another one. A batch is stored
with the feed's place in one transaction, and acknowledged after it. Of all processes one feeds at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ...client import connect
from ...identity import MessageIdentity
from .. import ids, limits
from ..config import FeedConfig
from ..errors import DatabaseUnavailableError, JobsError
from ..matching.filters import SUBJECT
from ..models import NewMessage, is_reserved
from ..runtime.parts import reason_of
from ..runtime.runtime import Runtime
from ..service import feeds
from ..service.feeds import Feed, NotLeadingError, Standing
from .position import Position, take_position

if TYPE_CHECKING:
    from ...client import Connection, JetStreamMessage

__all__ = ["feed_channel", "message_of"]

_GAUGES: Final = ("jobs_feed_lag", "jobs_feed_sequence", "jobs_feed_blocked")


async def feed_channel(runtime: Runtime, config: FeedConfig) -> None:
    """Feed until cancelled. Errors are logged, noted and retried; nothing is acknowledged early."""
    feeding = _Feeding(runtime, config)
    try:
        await runtime.parts.for_ever(feeding.part, feeding.run)
    finally:
        await feeding.resign()


class _Feeding:
    """One feed in one process."""

    def __init__(self, runtime: Runtime, config: FeedConfig) -> None:
        self._runtime = runtime
        self._config = config
        alone = config.feed_id == config.stream
        self.part = f"feed {config.channel}" + ("" if alone else f" {config.feed_id}")
        self._unfinished = 0
        self._noted_s = 0.0

    async def run(self) -> None:
        """Feed while this process is the one that does; wait while another one is."""
        runtime, config = self._runtime, self._config
        while not runtime.draining.is_set():
            feed = await self._lead()
            if feed is None:
                self._forget_gauges()
                runtime.parts.worked(self.part)
                await asyncio.sleep(feeds.LEAD_S / 4)
                continue
            try:
                async with connect(config.url, request_timeout=limits.FEED_CALL_S) as connection:
                    await self._feed(connection, feed)
            except NotLeadingError:
                continue
            except Exception as error:
                await self._note_failure(feed, error)
                raise

    async def resign(self) -> None:
        """Let another process feed at once."""
        config, node = self._config, self._runtime.node
        try:
            await self._runtime.database.write(
                lambda tx: feeds.resign(tx, config.channel, config.feed_id, node)
            )
        except DatabaseUnavailableError:
            return  # others wait until this one has been silent for a while

    async def _lead(self) -> Feed | None:
        config, node = self._config, self._runtime.node
        return await self._runtime.database.write(
            lambda tx: feeds.lead(tx, config.channel, config.feed_id, config.stream, node)
        )

    async def _feed(self, connection: Connection, feed: Feed) -> None:
        """Feed over this connection, from place to place: each time it was lost the stream may be another."""
        js = connection.jetstream()
        while not self._runtime.draining.is_set():
            lives = connection.reconnects
            position = await take_position(js, self._runtime, self._config, feed)
            await self._go_on(connection, lives, position)
            found = await self._lead()
            if found is None:
                return
            feed = found

    async def _go_on(self, connection: Connection, lives: int, position: Position) -> None:
        """Take batch after batch from there, until the connection was lost or the place was changed."""
        runtime, config = self._runtime, self._config
        order = _Order(position)
        channel = config.channel
        self._unfinished = await runtime.database.read(lambda tx: feeds.unfinished(tx, channel))
        self._noted_s = 0.0
        while not runtime.draining.is_set():
            blocked = self._unfinished >= config.unfinished_max and order.is_whole
            is_due = self._now_s() - self._noted_s >= limits.FEED_WAIT_S
            if is_due and not await self._note(position, blocked=blocked):
                return
            if blocked:
                runtime.parts.worked(self.part)
                await asyncio.sleep(limits.FEED_ROOM_S)
                self._unfinished = await runtime.database.read(
                    lambda tx: feeds.unfinished(tx, channel)
                )
                if self._unfinished < config.unfinished_max:
                    self._noted_s = 0.0
                continue
            room = limits.FEED_BYTES_MAX // max(1, position.bytes_each)
            n = max(1, min(config.batch, room))
            batch = await position.durable.fetch(n, max_wait=limits.FEED_WAIT_S)
            if connection.reconnects != lives:
                return  # what came may be of another stream, and comes again if it is not
            messages = await order.sorted(batch)
            if messages:
                await self._take(position, messages)
            runtime.parts.worked(self.part)
            if batch.error is not None:
                raise batch.error

    async def _take(self, position: Position, messages: Sequence[JetStreamMessage]) -> None:
        runtime, config, feed = self._runtime, self._config, position.feed
        items = [message_of(config, message) for message in messages]
        try:
            taken = await runtime.in_turn(lambda tx: feeds.take(tx, feed, runtime.node, items))
        except BaseException:
            for message in messages:
                message.nak(0.0)
            raise
        position.durable.ack_all(messages)
        position.feed = taken.feed
        position.bytes_each = max(len(message.payload) for message in messages)
        runtime.metrics.add("jobs_published_total", taken.new, channel=config.channel)
        runtime.metrics.add("jobs_enqueued_total", taken.jobs, channel=config.channel)
        unfinished = taken.unfinished
        if taken.waiting is not None:
            await runtime.make_jobs(taken.waiting)
            channel = config.channel
            unfinished = await runtime.database.read(lambda tx: feeds.unfinished(tx, channel))
        if self._unfinished < config.unfinished_max <= unfinished:
            self._noted_s = 0.0
        self._unfinished = unfinished

    async def _note(self, position: Position, *, blocked: bool) -> bool:
        """Note where the feed is. Returns whether it may go on from there."""
        config, runtime = self._config, self._runtime
        info, state = await position.durable.info(), (await position.stream.info()).state
        standing = Standing(
            state="backlog" if blocked else "feeding",
            filter=config.filter,
            group=config.group,
            lag=info.num_pending,
            first=state.first_seq,
            last=state.last_seq,
            unfinished=self._unfinished,
            unfinished_max=config.unfinished_max,
            goes_back=position.goes_back,
        )
        feed = position.feed
        labels = {"channel": config.channel, "feed": config.feed_id}
        values = (info.num_pending, feed.place.sequence, int(blocked))
        for gauge, value in zip(_GAUGES, values, strict=True):
            runtime.metrics.set(gauge, value, **labels)
        goes_on = await runtime.database.write(
            lambda tx: feeds.note(tx, feed, standing, runtime.node)
        )
        self._noted_s = self._now_s()
        return goes_on

    async def _note_failure(self, feed: Feed, error: Exception) -> None:
        config, runtime = self._config, self._runtime
        self._forget_gauges()
        before = feed.standing
        standing = Standing(
            state="failing",
            filter=config.filter,
            group=config.group,
            problem=reason_of(error),
            goes_back=None if before is None else before.goes_back,
        )
        try:
            await runtime.database.write(lambda tx: feeds.note(tx, feed, standing, runtime.node))
        except DatabaseUnavailableError:
            return  # the part is named as failing in any case

    def _forget_gauges(self) -> None:
        for gauge in _GAUGES:
            self._runtime.metrics.forget(
                gauge, channel=self._config.channel, feed=self._config.feed_id
            )

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


class _Order:
    """Puts what comes into the order of the stream.

    What is delivered for the first time comes in it. What had been delivered before and was not acknowledged
    comes again later, between newer ones: then all are held until each that is out is at hand.
    """

    def __init__(self, position: Position) -> None:
        self._durable = position.durable
        self._held: dict[int, JetStreamMessage] = {}
        info = position.durable.cached_info
        rests = info is not None and info.num_ack_pending == 0
        self._seen: int | None = info.delivered.consumer_seq if info is not None and rests else None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is awaited that was delivered before."""
        return self._seen is not None

    async def sorted(self, batch: Iterable[JetStreamMessage]) -> list[JetStreamMessage]:
        """Return those that can be taken now, in order."""
        messages = list(batch)
        if self._seen is not None:
            first = self._seen + 1
            numbers = [message.metadata.consumer_seq for message in messages]
            if numbers == [*range(first, first + len(messages))]:
                self._seen += len(messages)
                return messages
            self._seen = None
        self._held |= {message.metadata.stream_seq: message for message in messages}
        info = await self._durable.info()
        if info.num_ack_pending > len(self._held):
            return []
        self._seen = info.delivered.consumer_seq
        found = [self._held[sequence] for sequence in sorted(self._held)]
        self._held.clear()
        return found


def message_of(config: FeedConfig, message: JetStreamMessage) -> tuple[MessageIdentity, NewMessage]:
    """Identify the message of the stream, and make the channel's of it: its headers except those that are the
    service's or the broker's own, its subject, its sequence. Those that HTTP cannot carry, or that are too
    many, are left out and counted in a header of ours, and such characters of subject and ordering key are
    replaced: a message that is in a stream is not refused.
    """
    place = message.metadata
    identity = MessageIdentity(config.stream, place.stream_seq, place.timestamp_ns)
    content_type = "application/octet-stream"
    stored: dict[str, str] = {}
    left_out = 0
    for name, value in message.headers.items():
        lower = name.lower()
        is_type = lower == "content-type"
        if not is_type and (is_reserved(name) or lower.startswith("nats-")):
            continue
        try:
            ids.check_header(name, value, name)
        except JobsError:
            left_out += 1
            continue
        if is_type:
            content_type = value[: limits.CONTENT_TYPE_CHARS_MAX].rstrip()
        elif len(stored) < limits.METADATA_HEADERS_MAX:
            stored[name] = value
        else:
            left_out += 1
    if left_out:
        stored["X-Headrace-Headers-Left-Out"] = str(left_out)
    stored[SUBJECT] = ids.carried(message.subject)[: limits.SUBJECT_CHARS_MAX]
    stored["X-Headrace-Sequence"] = str(identity.sequence)
    return identity, NewMessage(
        payload=message.payload,
        content_type=content_type,
        message_id=ids.id_in_stream(identity),
        headers=stored,
        ordering_key=_ordering_key(config.ordering_key, message),
    )


def _ordering_key(rule: str, message: JetStreamMessage) -> str | None:
    """The key of a message by a feed's ``ordering_key``; None: it has none."""
    what, _, which = rule.partition(":")
    if what == "subject":
        tokens = message.subject.split(".")
        key = message.subject if not which else ".".join(tokens[int(which) - 1 : int(which)])
    elif what == "header":
        wanted = which.lower()
        found = (value for name, value in message.headers.items() if name.lower() == wanted)
        key = next(found, "")
    else:
        return None
    return ids.carried(key[: limits.ORDERING_KEY_CHARS_MAX]) or None
