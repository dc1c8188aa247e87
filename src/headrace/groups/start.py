"""Where a new group begins: with what there is, with what comes, at a place, or where somebody else is.

The position of a consumer is what it has acknowledged without a gap. That of a group is the lowest of its
members'. Whoever begins there leaves out nothing that the other has not handled, and is given again what it
has handled beyond that: nothing, if it had handled all that it was given.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from ..api.errors import Errors
from ..client import Stream
from ..client.jetstream.configuration import time_text
from ..client.seam import api_of
from ..errors import JetStreamApiError
from .errors import GroupConfigurationError, GroupError, GroupNotFoundError
from .record.names import SOURCE
from .record.records import ElasticGroup, StaticGroup
from .server.bucket import Records
from .server.consumers import consumers_of, existing, stream_of
from .server.work_queue import Beginning

if TYPE_CHECKING:
    from ..api.streams import StreamInfo
    from ..client import JetStream

_NO_CONSUMER: Final = Errors.CONSUMER_NOT_FOUND.err_code
_NO_STREAM: Final = Errors.STREAM_NOT_FOUND.err_code
_LOOKS: Final = 50
_PAUSE_S: Final = 0.1  # in which what was being copied is stored


@dataclass(frozen=True, slots=True)
class AfterConsumer:
    """Where a consumer of the same stream is: behind what it has acknowledged without a gap.

    Attributes:
        consumer: its name.
    """

    consumer: str


@dataclass(frozen=True, slots=True)
class AfterGroup:
    """Where another group of the same stream is: behind what all its members have handled.

    Attributes:
        group: its name.
        kind: ``static`` or ``elastic``, where the stream has one of each; "": the one there is.
    """

    group: str
    kind: Literal["", "static", "elastic"] = ""


Start = int | datetime | Literal["all", "now"] | AfterConsumer | AfterGroup
"""Where a group begins: with the first message there is, with the next one, at a sequence, at a time, or
where a consumer or another group is."""


def check_start(start: object) -> None:
    """Raises GroupConfigurationError."""
    if isinstance(start, (AfterConsumer, AfterGroup)) or start in ("all", "now"):
        return
    if isinstance(start, datetime) and start.tzinfo is not None:
        return
    if isinstance(start, int) and not isinstance(start, bool) and start > 0:
        return
    raise GroupConfigurationError(
        f"start is {start!r}; accepted: 'all', 'now', a sequence from 1 on, a datetime with a time zone, "
        "AfterConsumer(name), or AfterGroup(name)"
    )


async def beginning(js: JetStream, origin: StreamInfo, start: Start) -> Beginning:
    """Find out where a group of the stream ``origin`` begins.

    Raises GroupConfigurationError if the consumer or the group is not there, GroupError if the server does
    not say where it is.
    """
    check_start(start)
    stream = origin.config.name
    if isinstance(start, AfterConsumer):
        return Beginning(await _after_consumer(js, stream, start.consumer))
    if isinstance(start, AfterGroup):
        return Beginning(await _after_group(js, stream, start))
    if isinstance(start, datetime):
        return Beginning(time=time_text(start))
    if isinstance(start, int):
        return Beginning(start)
    return Beginning(origin.state.last_seq + 1) if start == "now" else Beginning()


async def first_sequence(js: JetStream, origin: StreamInfo, start: Start) -> int:
    """As ``beginning``, as a sequence; 0: the first message there is."""
    if not isinstance(start, datetime):
        return (await beginning(js, origin, start)).sequence
    check_start(start)
    stream = Stream(api_of(js), origin.config.name, origin)
    try:
        return (await stream.get_next_message(">", start_time=start)).sequence
    except JetStreamApiError as error:
        if error.code != 404:
            raise
    return (await stream.info()).state.last_seq + 1


async def _after_consumer(js: JetStream, stream: str, name: str) -> int:
    try:
        info = (await js.consumer(stream, name)).cached_info
    except JetStreamApiError as error:
        if error.err_code != _NO_CONSUMER:
            raise
        raise GroupConfigurationError(
            f"start: stream {stream!r} has no consumer {name!r}; headrace consumer ls {stream} lists them"
        ) from error
    assert info is not None
    return info.ack_floor.stream_seq + 1


async def _after_group(js: JetStream, stream: str, start: AfterGroup) -> int:
    if start.kind not in ("", "static", "elastic"):
        raise GroupConfigurationError(
            f"start: the kind of group {start.group!r} is {start.kind!r}; accepted: 'static', 'elastic'"
        )
    found: list[StaticGroup | ElasticGroup] = []
    if start.kind != "elastic":
        with contextlib.suppress(GroupNotFoundError):
            found.append(await Records(js, StaticGroup).get(stream, start.group))
    if start.kind != "static":
        with contextlib.suppress(GroupNotFoundError):
            found.append(await Records(js, ElasticGroup).get(stream, start.group))
    if not found:
        raise GroupConfigurationError(f"start: stream {stream!r} has no group {start.group!r}")
    if len(found) > 1:
        raise GroupConfigurationError(
            f"start: stream {stream!r} has a static and an elastic group {start.group!r}; say which: "
            f"AfterGroup({start.group!r}, 'static'), or static:{start.group} on the command line"
        )
    if isinstance(found[0], StaticGroup):
        return await _after_static(js, found[0])
    return await _after_elastic(js, found[0])


async def _after_static(js: JetStream, group: StaticGroup) -> int:
    """The lowest of its consumers' positions; a member that never joined is where the group begins."""
    names = {name for each in consumers_of(group).values() for name in each}
    there = await existing(js, group.stream, names)
    if not names or len(there) < len(names):
        return group.start_sequence or 1
    return min(info.ack_floor.stream_seq for info in there) + 1


async def _after_elastic(js: JetStream, group: ElasticGroup) -> int:
    """The first message in the work queue is the first that is not handled. If there is none it is behind
    what was copied, once nothing is on its way from the stream to the queue."""
    name, before = stream_of(group), None
    for _ in range(_LOOKS):
        try:
            queue = await js.stream(name)
        except JetStreamApiError as error:
            if error.err_code != _NO_STREAM:
                raise
            raise GroupConfigurationError(
                f"start: elastic group {group.name!r} of stream {group.stream!r} has no work queue {name!r}"
            ) from error
        info = queue.cached_info
        assert info is not None
        source = info.sources[0] if info.sources else None
        configured = info.config.sources[0] if info.config.sources else None
        now = (info.state.messages, info.state.last_seq, source.seq if source else 0)
        if info.state.messages:
            if sequence := await _copied_from(queue):
                return sequence
        elif now == before and now[2] and info.config.num_replicas <= 1:
            return now[2] + 1
        elif now == before and not info.state.last_seq and source and not source.lag:
            return max(1, configured.opt_start_seq if configured else 1)
        before = now
        await asyncio.sleep(_PAUSE_S)
    raise GroupError(
        f"start: the work queue of elastic group {group.name!r} of stream {group.stream!r} is empty, and the "
        "server does not say surely how far it had copied; call again while messages wait in it, or give a "
        "sequence"
    )


async def _copied_from(queue: Stream) -> int:
    """Where the first message of a work queue comes from; 0 if it is handled by now."""
    try:
        copy = await queue.get_next_message(">")
    except JetStreamApiError as error:
        if error.code != 404:
            raise
        return 0
    fields = (copy.headers.get(SOURCE) or "").split(" ")
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
