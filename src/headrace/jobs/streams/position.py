"""Place of a feed in its stream: the durable consumer is found, made, or put where the database says.

The stream may have lost its end, been put back from a copy, or been made anew since; all of these give
sequences again. So the feed's place is compared with the stream whenever there may have been one of that.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ...api.roles import FEEDS_CHANNEL
from ...client.jetstream.stored_message import if_found
from ...errors import ConsumerNotFoundError, StreamNotFoundError
from ...identity import MessageIdentity, Sameness, compare
from .. import limits
from ..config import FeedConfig
from ..errors import JobsError
from ..runtime.runtime import Runtime
from ..service import feeds
from ..service.feeds import Feed

if TYPE_CHECKING:
    from ...api.streams import StreamInfo
    from ...client import Consumer as Durable
    from ...client import JetStream, Stream

__all__ = ["Position", "take_position"]

_ALL: Final = ">"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEEPER_S: Final = 60.0


class Position:
    """A feed at its place: the durable consumer delivers what comes after it.

    ``goes_back``: whether the stream keeps what was taken from it. ``bytes_each``: how large a message is, as
    far as was seen.
    """

    def __init__(self, feed: Feed, durable: Durable, stream: Stream, info: StreamInfo) -> None:
        self.feed = feed
        self.durable = durable
        self.stream = stream
        self.goes_back = _goes_back(info)
        self.bytes_each = info.state.bytes // max(1, info.state.messages)


def _goes_back(info: StreamInfo) -> bool:
    return info.config.retention == "limits"


async def take_position(
    js: JetStream, runtime: Runtime, config: FeedConfig, feed: Feed
) -> Position:
    """Compare the feed's place with the stream, and have a durable consumer that goes on there.

    Nothing is under way, and no other process feeds. The place is stored first, then the consumer is made:
    who is interrupted between finds it ahead of the place, and makes it again.

    Raises JobsError: there is no such stream.
    """
    try:
        stream = await js.stream(config.stream)
        info = await stream.info()
    except StreamNotFoundError as error:
        told = f"the broker has no stream {config.stream}"
        raise JobsError(409, "stream_missing", told) from error
    durable = await _durable(stream, config.group)
    if feed.again is not None:
        feed = await _go_back(stream, runtime, config, feed, info)
    sameness = await _sameness(stream, feed, info)
    if sameness is Sameness.OTHER:
        feed = await _find_again(stream, runtime, feed, info)
    at = feed.place.sequence
    if sameness is Sameness.OTHER:
        durable = await _make(stream, config, at, info, durable)
    elif durable is None:
        # Where the message of the place is gone, too, nobody can tell which stream this is: what was fed of
        # it is known by its ids.
        durable = await _make(stream, config, 0 if sameness is Sameness.GONE else at, info, None)
    elif _is_another_kind(durable) or (
        _goes_back(info) and not await _rests_at(stream, durable, config, at)
    ):
        durable = await _make(stream, config, at, info, durable)
    elif _differs(durable, config):
        if _goes_back(info) and _filter_of(durable) != _wanted(config)["filter_subject"]:
            # nats-server may go on by the subjects of before: one that is made anew does not.
            durable = await _make(stream, config, at, info, durable)
        else:
            await durable.update(**_wanted(config))
    return Position(feed, durable, stream, info)


async def _durable(stream: Stream, name: str) -> Durable | None:
    try:
        return await stream.consumer(name)
    except ConsumerNotFoundError:
        return None


def _wanted(config: FeedConfig) -> dict[str, Any]:
    return {
        "ack_wait": limits.FEED_ACK_WAIT_S,
        "max_ack_pending": 2 * config.batch,
        "max_deliver": -1,
        "filter_subject": "" if config.filter == _ALL else config.filter,
        "metadata": {FEEDS_CHANNEL: config.channel},
    }


def _config_of(durable: Durable) -> Any:
    info = durable.cached_info
    if info is None:
        raise AssertionError("a consumer that was found or made is known")
    return info.config


def _filter_of(durable: Durable) -> str:
    config = _config_of(durable)
    return ",".join(config.filter_subjects) if config.filter_subjects else config.filter_subject


def _is_another_kind(durable: Durable) -> bool:
    config = _config_of(durable)
    return bool(config.deliver_subject) or config.ack_policy != "explicit"


def _differs(durable: Durable, config: FeedConfig) -> bool:
    found, wanted = _config_of(durable), _wanted(config)
    told = wanted.pop("metadata").items() <= (found.metadata or {}).items()
    return not told or any(getattr(found, name) != value for name, value in wanted.items())


async def _rests_at(stream: Stream, durable: Durable, config: FeedConfig, at: int) -> bool:
    """Whether nothing after the place was acknowledged, and nothing is out.

    It was, if the database is an older copy, or the feed went back; and it is, if a process was killed.
    """
    info = durable.cached_info
    if at < 0 or info is None:
        return True  # nothing was fed yet: the consumer is where somebody has put it
    if info.num_ack_pending or info.ack_floor.stream_seq <= at:
        return not info.num_ack_pending
    following = await if_found(stream.get_next_message(config.filter, at + 1))
    return following is None or following.sequence > info.ack_floor.stream_seq


async def _sameness(stream: Stream, feed: Feed, info: StreamInfo) -> Sameness:
    """Whether this is the stream that was fed from: by the place, or the newest mark that can tell."""
    sameness = await _look(stream, feed.place, info)
    for mark in reversed(feed.marks):
        if sameness is not Sameness.GONE:
            break
        sameness = await _look(stream, MessageIdentity(feed.place.stream, *mark), info)
    return sameness


async def _look(stream: Stream, at: MessageIdentity, info: StreamInfo) -> Sameness:
    if at.sequence <= 0:
        return Sameness.SAME
    found = await if_found(stream.get_next_message(_ALL, at.sequence))
    return compare(
        at,
        None if found is None else MessageIdentity(stream.name, found.sequence, found.timestamp_ns),
        MessageIdentity(stream.name, info.state.last_seq, 0),
    )


async def _find_again(stream: Stream, runtime: Runtime, feed: Feed, info: StreamInfo) -> Feed:
    """Put the feed where the stream still is the one it was: at its newest mark, or before all."""
    sequence, stored_ns = 0, 0
    for mark in reversed(feed.marks):
        if await _look(stream, MessageIdentity(stream.name, *mark), info) is not Sameness.OTHER:
            sequence, stored_ns = mark
            break
    told = (
        f"the stream {stream.name} has lost its end, or is an older copy, and gives sequences again: "
        f"messages after {sequence} are taken where they are not known yet"
        if sequence
        else f"the stream {stream.name} is another one than before: all of it is taken"
    )
    return await runtime.database.write(
        lambda tx: feeds.place(tx, feed, sequence, stored_ns, told, again_until=0)
    )


async def _go_back(
    stream: Stream, runtime: Runtime, config: FeedConfig, feed: Feed, info: StreamInfo
) -> Feed:
    """Put the feed where somebody asked it to begin again, as far as the stream reaches."""
    again, state = feed.again, info.state
    if again is None:
        raise AssertionError("nobody asked for it")
    if not _goes_back(info):
        told = f"the stream {stream.name} keeps nothing that was taken: it goes on where it is"
        at, until = feed.place, feed.again_until
        return await runtime.database.write(
            lambda tx: feeds.place(tx, feed, at.sequence, at.timestamp_ns, told, again_until=until)
        )
    if again.sequence is not None:
        begin = again.sequence
    else:
        since = _EPOCH + timedelta(microseconds=again.since_us or 0)
        found = await if_found(stream.get_next_message(config.filter, start_time=since))
        begin = state.last_seq + 1 if found is None else found.sequence
    before = max(0, min(begin, feed.place.sequence + 1) - 1)
    message = await if_found(stream.get_message(before)) if before else None
    stored_ns = 0 if message is None else message.timestamp_ns
    until = max(feed.place.sequence, feed.again_until)
    return await runtime.database.write(
        lambda tx: feeds.place(tx, feed, before, stored_ns, None, again_until=until)
    )


async def _make(
    stream: Stream, config: FeedConfig, after: int, info: StreamInfo, before: Durable | None
) -> Durable:
    """Make the durable consumer, in the place of the one ``before``: it delivers what comes after that."""
    begin: dict[str, Any] = {"deliver_policy": "all"}
    if after > 0 and info.config.retention != "workqueue":
        begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
    keeper = None
    if before is not None:
        if info.config.retention == "interest":
            # Or what nobody else is interested in would be gone with it.
            keeper = await stream.create_consumer(
                ack_policy="explicit",
                inactive_threshold=_KEEPER_S,
                filter_subject=_wanted(config)["filter_subject"],
                **begin,
            )
        await stream.delete_consumer(config.group)
    durable = await stream.create_consumer(
        durable_name=config.group,
        description=f"feeds the channel {config.channel} of headrace jobs",
        ack_policy="explicit",
        **begin,
        **_wanted(config),
    )
    if keeper is not None:
        await keeper.delete()
    return durable
