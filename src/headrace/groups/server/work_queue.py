"""The work queue stream of an elastic group: it copies the group's subjects and numbers them.

It is taken for the group's own only if it is made for nothing else: a work queue without subjects of its
own that copies the group's stream through the group's transforms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ...api.errors import Errors
from ...api.streams import StreamConfig, StreamInfo, StreamSource
from ...client import JetStream, Stream
from ...client.seam import api_of, create_empty_stream
from ...errors import JetStreamApiError, StreamLeftoversError
from ..errors import GroupConfigurationError, GroupError, GroupExistsError
from ..record.assignment import transforms
from ..record.names import elastic_stream
from ..record.records import ElasticGroup
from .consumers import stream_of

if TYPE_CHECKING:
    from ...api.keywords import StreamFields

_NOT_FOUND: Final = Errors.STREAM_NOT_FOUND.err_code
_EXISTS: Final = Errors.STREAM_NAME_EXISTS.err_code
_NAME_BYTES_MAX: Final = 255  # the servers' own limit


class Beginning(NamedTuple):
    """The first message it copies, by its sequence or its time; neither: the first there is."""

    sequence: int = 0
    time: str | None = None


FROM_THE_FIRST: Final = Beginning()


def config_of(
    group: ElasticGroup, origin: StreamInfo, start: Beginning = FROM_THE_FIRST
) -> StreamConfig:
    """The stream as it is made: stored as ``origin`` is. Raises GroupConfigurationError."""
    name = stream_of(group)
    if len(name) > _NAME_BYTES_MAX:
        raise GroupConfigurationError(
            f"the elastic group's stream would be named {name!r}, which is {len(name)} bytes long; "
            f"accepted: at most {_NAME_BYTES_MAX} of stream, '-' and group together"
        )
    return StreamConfig(
        name=name,
        retention="workqueue",
        discard="new",
        max_msgs=group.max_buffered_messages if group.max_buffered_messages > 0 else -1,
        max_bytes=group.max_buffered_bytes if group.max_buffered_bytes > 0 else -1,
        storage=origin.config.storage,
        num_replicas=origin.config.num_replicas,
        allow_direct=True,
        sources=(
            StreamSource(
                name=group.stream,
                opt_start_seq=start.sequence,
                opt_start_time=start.time,
                subject_transforms=transforms(group.partitioning_filters or (), group.max_members),
            ),
        ),
    )


async def prepare(js: JetStream, group: ElasticGroup, origin: StreamInfo) -> None:
    """Before a group is stored: a stream that was left over gets the group's limits; it keeps what it holds.

    Raises GroupExistsError if a stream of that name is not the group's, and as ``ensure``.
    """
    found = await _find(js, stream_of(group))
    if found is None:
        return
    _check_own(found, group)
    await _limit(js, found, config_of(group, origin))


async def ensure(
    js: JetStream,
    group: ElasticGroup,
    origin: StreamInfo,
    start: Callable[[], Awaitable[Beginning]],
) -> None:
    """Make the stream, or make sure that it is the group's; one that is there is left as it is.

    Args:
        start: finds out where it begins, if it is made.

    Raises GroupExistsError, and GroupError or GroupConfigurationError if the server refuses.
    """
    found = await _find(js, stream_of(group))
    if found is not None:
        _check_own(found, group)
        return
    wanted = config_of(group, origin, await start())
    try:
        await create_empty_stream(js, wanted)
    except StreamLeftoversError as error:
        raise GroupError(
            f"can't create the elastic consumer group's stream {wanted.name!r}: the server puts "
            f"{error.messages} messages of a deleted one in it each time; try again some seconds later"
        ) from error
    except JetStreamApiError as error:
        if error.err_code != _EXISTS:
            raise refused(wanted.name, "create", error) from error
        there = await _find(js, stream_of(group))  # somebody else was faster; is it this group's?
        if there is not None:
            _check_own(there, group)


async def change(js: JetStream, group: ElasticGroup, origin: StreamInfo) -> None:
    """Give the stream the group's limits; it keeps what it holds, and takes no more until there is room.

    Raises GroupError if there is no such stream or the server refuses, GroupExistsError if it is not the
    group's.
    """
    found = await find(js, group.stream, group.name)
    _check_own(found, group)
    await _limit(js, found, config_of(group, origin))


async def _limit(js: JetStream, found: StreamInfo, wanted: StreamConfig) -> None:
    limits: StreamFields = {
        "max_msgs": wanted.max_msgs,
        "max_bytes": wanted.max_bytes,
        "discard": "new",  # in the same change, so that a lower limit removes nothing
    }
    if all(getattr(found.config, name) == value for name, value in limits.items()):
        return
    try:
        await Stream(api_of(js), wanted.name, found).update(**limits)
    except JetStreamApiError as error:
        raise refused(wanted.name, "change", error) from error


def refused(name: str, verb: str, error: JetStreamApiError) -> GroupError:
    """What to raise where the server refuses something about a work queue."""
    kind = GroupConfigurationError if error.code == 400 else GroupError
    return kind(
        f"can't {verb} the elastic consumer group's stream: {error.description} (stream {name!r})"
    )


async def remove(js: JetStream, group: ElasticGroup) -> None:
    """Delete the stream if it is the group's."""
    found = await _find(js, stream_of(group))
    if found is None or foreign(found, group):
        return
    try:
        await js.delete_stream(found.config.name)
    except JetStreamApiError as error:
        if error.err_code != _NOT_FOUND:  # else somebody else was faster
            raise


async def find(js: JetStream, stream: str, group: str) -> StreamInfo:
    """The stream of a group of ``stream``. Raises GroupError if there is none."""
    name = elastic_stream(stream, group)
    found = await _find(js, name)
    if found is None:
        raise GroupError(
            f"elastic group {group!r} of stream {stream!r} has no stream {name!r}: create the group again, "
            "which makes it"
        )
    return found


async def _find(js: JetStream, name: str) -> StreamInfo | None:
    try:
        return (await js.stream(name)).cached_info
    except JetStreamApiError as error:
        if error.err_code != _NOT_FOUND:
            raise
        return None


def _check_own(found: StreamInfo, group: ElasticGroup) -> None:
    why = foreign(found, group)
    if why:
        raise GroupExistsError(
            f"stream {found.config.name!r} exists and is not that of elastic group {group.name!r} of "
            f"stream {group.stream!r}: {why}; take another name for the group"
        )


def foreign(found: StreamInfo, group: ElasticGroup) -> str:
    """Why a stream is not the group's; "" if it is. While the group is being changed it may have either
    side's numbers."""
    if why := foreign_form(found, group):
        return why
    other = group.other_side()
    if numbers_for(found, group) or (other is not None and numbers_for(found, other)):
        return ""
    return "it numbers other subjects, or in another way"


def numbers_for(found: StreamInfo, group: ElasticGroup) -> bool:
    """Whether a work queue numbers its subjects as ``group`` has them."""
    wanted = transforms(group.partitioning_filters or (), group.max_members)
    return found.config.sources[0].subject_transforms == wanted


def foreign_form(found: StreamInfo, group: ElasticGroup) -> str:
    """Why a stream is no work queue of this group, however it numbers; "" if it is one."""
    config = found.config
    if config.retention != "workqueue":
        return f"its retention is {config.retention!r}"
    if config.subjects or config.mirror is not None:
        return "it has subjects of its own" if config.subjects else "it is a mirror"
    if [source.name for source in config.sources] != [group.stream]:
        names = ", ".join(repr(source.name) for source in config.sources) or "nothing"
        return f"it copies {names}"
    source = config.sources[0]
    if source.external is not None:
        return f"it copies stream {source.name!r} of another account or domain"
    return ""
