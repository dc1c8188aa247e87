"""Lags of groups and Spark queries, from what a look saw already and few questions of its own.

Records of groups are read again when their bucket has changed. What a group has to do is counted from the
streams and consumers of the look. For the age of the first message behind, a query is asked a question each,
``ASKED_MAX`` of them a look. What is not answered is said, and left alone for ``PATIENCE_S``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..api.consumers import ConsumerInfo
from ..api.roles import shows_progress
from ..api.streams import StreamInfo
from ..api.times import parse_time
from ..client.jetstream.stored_message import if_found
from ..client.jetstream_context import JetStream
from ..errors import HeadraceError
from ..groups.progress import GroupLag, assemble
from ..groups.record import names
from ..groups.record.records import ElasticGroup, StaticGroup
from ..groups.server.bucket import Records
from ..groups.server.consumers import consumers_of, stream_of
from .look import Age, Group, GroupKey

_LOG: Final = logging.getLogger("headrace.console")

GROUPS_MAX: Final = 500  # groups whose lag is followed; the first by stream and name
ASKED_MAX: Final = 20  # queries for which the age of the first message behind is asked in one look
AGES_S: Final = 2.0  # how long all of these questions may take together
PATIENCE_S: Final = 60.0

_NS: Final = 1_000_000_000

Streams = Mapping[str, StreamInfo]
Consumers = Mapping[tuple[str, str], ConsumerInfo]
ByStream = Mapping[str, Mapping[str, ConsumerInfo]]


class Lags:
    """Asks what a look at streams and consumers leaves open.

    Args:
        js: to the server.
        clock: seconds, for patience.

    Attributes:
        problem: why records of groups could not be read, or "".
    """

    def __init__(self, js: JetStream, clock: Callable[[], float]) -> None:
        self._js = js
        self._clock = clock
        self._records: dict[GroupKey, Group] = {}
        self._read_at: tuple[int, ...] = ()
        self._records_wait = 0.0
        self._ages_wait = 0.0
        self.problem = ""

    async def groups(self, streams: Streams, consumers: Consumers) -> dict[GroupKey, GroupLag]:
        """Lag of each group, as far as the look tells; without the parts it did not see."""
        found: dict[GroupKey, GroupLag] = {}
        known = await self._known(streams)
        sorted_out = by_stream(consumers) if known else {}
        for key, group in list(known.items())[:GROUPS_MAX]:
            look = lag_of(group, streams, sorted_out)
            if look is not None:
                found[key] = look
        return found

    async def ages(self, consumers: Consumers) -> dict[tuple[str, str], Age]:
        """Age of the first message behind, for the queries that are furthest behind."""
        queries = {key: info for key, info in consumers.items() if is_query(info)}
        ages: dict[tuple[str, str], Age] = dict.fromkeys(queries)
        behind = [key for key, info in queries.items() if info.num_pending]
        ages.update({key: 0.0 for key in queries if key not in behind})
        behind.sort(key=lambda key: -queries[key].num_pending)
        if self._clock() < self._ages_wait:
            return ages
        asked = behind[:ASKED_MAX]
        try:
            async with asyncio.timeout(AGES_S):
                answers = await asyncio.gather(*(self._age_s(queries[key]) for key in asked))
        except (HeadraceError, TimeoutError) as error:
            self._ages_wait = self._clock() + PATIENCE_S
            _LOG.warning(
                "cannot see how old the messages behind Spark queries are: %s", _said(error)
            )
            return ages
        return {**ages, **dict(zip(asked, answers, strict=True))}

    async def _known(self, streams: Streams) -> dict[GroupKey, Group]:
        """The records of all groups. Read only after their buckets have changed."""
        buckets = [
            streams.get(f"KV_{bucket}") for bucket in (names.STATIC_BUCKET, names.ELASTIC_BUCKET)
        ]
        now = tuple(0 if each is None else each.state.last_seq for each in buckets)
        if now == self._read_at and not self.problem:
            return self._records
        if self._clock() < self._records_wait:
            return self._records
        try:
            records, damaged = await self._read(buckets)
        except HeadraceError as error:
            self._records_wait = self._clock() + PATIENCE_S
            self.problem = f"The records of groups cannot be read: {_said(error)}"
            _LOG.warning("%s", self.problem)
            return self._records
        self._records, self._read_at = records, now
        self.problem = ""
        if damaged:
            self._records_wait = self._clock() + PATIENCE_S
            self.problem = f"Records of groups are damaged: {'; '.join(damaged)}"
        return records

    async def _read(
        self, buckets: list[StreamInfo | None]
    ) -> tuple[dict[GroupKey, Group], list[str]]:
        records: dict[GroupKey, Group] = {}
        damaged: list[str] = []
        for info, kind in zip(buckets, (StaticGroup, ElasticGroup), strict=True):
            if info is None:
                continue
            prefix = f"$KV.{info.config.name.removeprefix('KV_')}."
            stream = await self._js.stream(info.config.name)
            keys = (await stream.info(subjects=f"{prefix}>")).state.subjects
            of: Records[Any] = Records(self._js, kind)
            for name in sorted({key.removeprefix(prefix).partition(".")[0] for key in keys}):
                found = await of.list(name)
                for group in found.groups:
                    records[GroupKey(of.word, name, group.name)] = group
                damaged += map(str, found.damaged.values())
        return dict(sorted(records.items(), key=lambda each: each[0][1:])), damaged

    async def _age_s(self, info: ConsumerInfo) -> Age:
        """Seconds since the first message behind was stored; None if one question does not tell."""
        if info.config.filter_subjects or not info.ts:
            return None  # several filters: one question each would not tell which is first
        done = info.ack_floor.stream_seq or info.delivered.stream_seq
        stream = await self._js.stream(info.stream_name)
        message = await if_found(
            stream.get_next_message(info.config.filter_subject or ">", done + 1)
        )
        if message is None:
            return None
        return max(0.0, (parse_time(info.ts) - message.timestamp_ns) / _NS)


def is_query(info: ConsumerInfo) -> bool:
    """Whether a consumer shows the progress of a Spark query."""
    return shows_progress(info.config.metadata)


def lag_of(group: Group, streams: Streams, consumers: ByStream) -> GroupLag | None:
    """Lag of a group, by what a look saw; None where its stream is not there, or not dated."""
    stream = streams.get(stream_of(group))
    if stream is None or not stream.ts:
        return None
    there = consumers.get(stream.config.name, {})
    if isinstance(group, StaticGroup) or group.layout == "per_partition":
        wanted = [name for names in consumers_of(group).values() for name in names]
        there = {name: there[name] for name in wanted if name in there}
    # What waits at the source is the server's own number here; the group's page asks more closely.
    source = max((each.lag for each in stream.sources), default=0)
    return assemble(group, stream, there, {}, source if isinstance(group, ElasticGroup) else 0)


def by_stream(consumers: Consumers) -> ByStream:
    """The consumers of each stream by name."""
    found: dict[str, dict[str, ConsumerInfo]] = {}
    for (stream, name), info in consumers.items():
        found.setdefault(stream, {})[name] = info
    return found


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
