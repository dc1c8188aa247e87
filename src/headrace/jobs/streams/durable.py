"""The durable consumer of one push consumer: found, made, mended, moved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ...errors import ConsumerNotFoundError
from .. import limits
from ..models import Consumer
from ..runtime.runtime import Runtime
from ..service import stream_positions
from ..service.stream_positions import Cursor, Replay

if TYPE_CHECKING:
    from ...client import Consumer as Durable
    from ...client import JetStream, Stream

__all__ = ["differs", "find_durable", "wanted", "window"]

_UNLIMITED: Final = -1


def window(consumer: Consumer) -> int:
    """How many messages of the consumer may be here and unfinished: enough for the next calls to begin."""
    return max(limits.STREAM_HELD_MIN, 2 * consumer.settings.concurrency)


def wanted(consumer: Consumer, ack_wait_s: float) -> dict[str, Any]:
    """What the durable consumer's configuration has to say."""
    patterns = () if consumer.stream is None else consumer.stream.filter
    one = patterns[0] if len(patterns) == 1 else ""
    return {
        "ack_wait": ack_wait_s,
        "max_ack_pending": window(consumer),
        "max_deliver": _UNLIMITED,
        "filter_subject": one,
        "filter_subjects": () if one else patterns,
    }


def _subjects(config: Any) -> set[str]:
    return {*config.filter_subjects, config.filter_subject} - {""}


def _subjects_of(consumer: Consumer) -> set[str]:
    return set() if consumer.stream is None else set(consumer.stream.filter)


def differs(config: Any, consumer: Consumer, ack_wait_s: float) -> bool:
    """Whether somebody has changed the durable consumer, or the definition has changed."""
    given = wanted(consumer, ack_wait_s)
    return any(getattr(config, name) != value for name, value in given.items())


async def find_durable(
    js: JetStream,
    runtime: Runtime,
    consumer: Consumer,
    ack_wait_s: float,
    settle: Callable[[], Awaitable[None]],
) -> tuple[Durable, str]:
    """The durable consumer, as it has to be, and when its stream was made.

    It is made anew where a replay was asked for, where it is gone, and where the stream is another one than
    before. ``settle`` is called before that: it returns when no call is under way, and all that was fetched
    is forgotten.
    """
    cursor = await runtime.database.read(lambda tx: stream_positions.cursor_of(tx, consumer.seq))
    stream = await js.stream(cursor.stream)
    info = await stream.info()
    created, last = info.created or "", info.state.last_seq
    is_other = cursor.created is not None and cursor.created != created
    if cursor.replay is not None and not (is_other and cursor.replay.sequence is not None):
        await settle()
        durable = await _make(stream, consumer, cursor, ack_wait_s, _from(cursor.replay, last))
        replay, acked = cursor.replay, _acked(durable)
        await runtime.database.write(
            lambda tx: stream_positions.move(tx, consumer, created, acked, ended=replay)
        )
        return durable, created
    if is_other:
        await settle()
        durable = await _make(stream, consumer, cursor, ack_wait_s, {"deliver_policy": "all"})
        told = f"the stream {cursor.stream} was made anew, {created}: all of it is delivered"
        await runtime.database.write(
            lambda tx: stream_positions.move(tx, consumer, created, 0, told, ended=cursor.replay)
        )
        return durable, created
    try:
        durable = await stream.consumer(cursor.durable)
    except ConsumerNotFoundError:
        why = "its durable consumer was gone from the broker"
    else:
        config = (durable.cached_info or await durable.info()).config
        if config.deliver_subject or config.ack_policy != "explicit":
            why = "its durable consumer was made into another kind"
        elif _subjects(config) != _subjects_of(consumer):
            # nats-server may go on by the subjects of before: one that is made anew does not.
            why = "its durable consumer had other subjects"
        else:
            if differs(config, consumer, ack_wait_s):
                await durable.update(**wanted(consumer, ack_wait_s))
            return durable, created
    await settle()
    acked = min(cursor.acked_seq or 0, last)
    return await _again(stream, runtime, consumer, cursor, ack_wait_s, acked, why), created


async def _again(
    stream: Stream,
    runtime: Runtime,
    consumer: Consumer,
    cursor: Cursor,
    ack_wait_s: float,
    acked: int,
    why: str,
) -> Durable:
    """Another durable consumer goes on where the one before was when it was noted last."""
    begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": acked + 1}
    durable = await _make(stream, consumer, cursor, ack_wait_s, begin)
    told = f"{why}: another one goes on after sequence {acked}"
    created = cursor.created or ""
    await runtime.database.write(
        lambda tx: stream_positions.move(tx, consumer, created, acked, told)
    )
    return durable


async def _make(
    stream: Stream, consumer: Consumer, cursor: Cursor, ack_wait_s: float, begin: dict[str, Any]
) -> Durable:
    try:
        await stream.delete_consumer(cursor.durable)
    except ConsumerNotFoundError:
        pass  # it is to be made anyhow
    return await stream.create_consumer(
        durable_name=cursor.durable,
        description=f"headrace jobs: {consumer.channel_id}/{consumer.consumer_id}",
        ack_policy="explicit",
        **begin,
        **wanted(consumer, ack_wait_s),
    )


def _from(replay: Replay, last: int) -> dict[str, Any]:
    """How a durable consumer begins there; not after what is published next."""
    if replay.sequence is not None:
        return {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, min(replay.sequence, last + 1)),
        }
    at = datetime.fromtimestamp((replay.since_us or 0) / 1e6, UTC)
    return {
        "deliver_policy": "by_start_time",
        "opt_start_time": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }


def _acked(durable: Durable) -> int:
    info = durable.cached_info
    return 0 if info is None else info.ack_floor.stream_seq
