"""The stream that is written to: what it must allow, checked before the first row."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...api.streams import StreamConfig
from ...errors import HeadraceError
from ...subjects import is_subset, overlaps
from ..links.control import Control, StreamMissingError
from ..links.link import Link
from ..links.outages import FIRST_CONNECT_S, ServerPatience, may_pass
from ..options import Connection
from .layout import Layout
from .options import ACCEPTED, SinkOptions
from .rows import Limits

_HEADERS_RESERVED: Final = 512
"""Bytes that a message of an atomic batch may have beside the row's own."""
_SIZE_LEAST: Final = 1024


class Target(NamedTuple):
    """A stream that can be written to as the options say.

    ``epoch`` is the time of its creation; ``rolls_up`` whether it keeps only the last marker of a subject;
    ``direct`` whether it answers direct gets; ``mean_bytes`` about how large its messages are; ``kept`` how
    many messages of a subject it keeps at most, 0 for no limit.
    """

    epoch: str
    limits: Limits
    rolls_up: bool
    direct: bool = False
    mean_bytes: int = 0
    kept: int = 0


def target_of(link: Link, options: SinkOptions, layout: Layout) -> Target:
    """Look at the stream.

    Raises:
        ConfigurationError: it does not exist, or does not take what is to be written.
    """
    try:
        info = Control(link, options.stream).stream_info()
    except StreamMissingError as error:
        if options.bucket:
            raise StreamMissingError(
                f"{ACCEPTED.who}: the server has no bucket {options.bucket!r}; make it: headrace kv add "
                f"{options.bucket}"
            ) from error
        raise StreamMissingError(str(error).replace("jetstream source", ACCEPTED.who)) from error
    config = info.config
    _check_takes(config, options)
    if layout.ttl >= 0 and not config.allow_msg_ttl:
        raise ACCEPTED.error(
            f"the rows have a column ttl, and stream {options.stream!r} does not allow lifetimes of "
            "messages (allow_msg_ttl)"
        )
    exactly = options.delivery == "exactlyonce"
    if options.key:
        _check_keyed(config, options)
    elif exactly:
        _check_atomic(config, options)
    most = link.info.max_payload
    if config.max_msg_size >= 0:
        most = min(most, config.max_msg_size)
    limits = Limits(
        config.subjects,
        f"{options.marker_prefix}.>",
        max(0, most - _HEADERS_RESERVED) if exactly or options.key else most,
    )
    return Target(
        info.created,
        limits,
        config.allow_rollup_hdrs and not config.deny_purge,
        config.allow_direct,
        info.state.bytes // max(1, info.state.messages),
        max(0, config.max_msgs_per_subject),
    )


def check_before(options: SinkOptions, layout: Layout, *, streaming: bool) -> str:
    """Look at the stream before any task runs, so that what is wrong is said at once.

    A running query waits for its server in its tasks: they know whether it ran before. So a server that is
    away is no error here when streaming.

    Returns:
        When the stream was created; "" if the server is away.
    """
    patience = ServerPatience(FIRST_CONNECT_S, f"stream {options.stream!r}")
    while True:
        try:
            return look(options.connection, options, layout).epoch
        except HeadraceError as error:
            if not may_pass(error):
                raise
            try:
                patience.pause(error)
            except HeadraceError:
                if streaming:
                    return ""
                raise


def look(connection: Connection, options: SinkOptions, layout: Layout) -> Target:
    """``target_of`` over a connection of its own."""
    link = Link.open(connection)
    try:
        return target_of(link, options, layout)
    finally:
        link.close()


def _check_takes(config: StreamConfig, options: SinkOptions) -> None:
    """Whether anything at all can be published there, and is confirmed."""
    name = options.stream
    if config.mirror is not None or not config.subjects:
        raise ACCEPTED.error(f"stream {name!r} takes no messages: it has no subjects of its own")
    if config.sealed:
        raise ACCEPTED.error(f"stream {name!r} is sealed")
    if config.no_ack:
        raise ACCEPTED.error(f"stream {name!r} confirms nothing (no_ack); rows could be lost")
    if config.allow_msg_counter:
        raise ACCEPTED.error(
            f"stream {name!r} counts (allow_msg_counter); the sink writes no counts"
        )
    template = options.subject
    if template is not None and not any(
        overlaps(template.pattern().encode(), subject.encode()) for subject in config.subjects
    ):
        raise ACCEPTED.error(
            f"stream {name!r} has no subject {template.pattern()!r}; it has {', '.join(config.subjects)}"
        )


def _check_keyed(config: StreamConfig, options: SinkOptions) -> None:
    name = options.stream
    if config.retention != "limits":
        raise ACCEPTED.error(
            f"'key' compares each value with the last one of its subject; stream {name!r} has retention "
            f"{config.retention!r}, which removes it. It needs retention limits"
        )
    if config.subject_transform is not None:
        raise ACCEPTED.error(
            f"'key' compares each value with the last one of its subject, and stream {name!r} renames "
            "subjects (subject_transform)"
        )
    if config.discard_new_per_subject and config.max_msgs_per_subject > 0:
        raise ACCEPTED.error(
            f"stream {name!r} refuses new messages of a subject that is full (discard_new_per_subject), and "
            "would refuse the latest value"
        )


def _check_atomic(config: StreamConfig, options: SinkOptions) -> None:
    name, space = options.stream, f"{options.marker_prefix}.{options.sink_id}.*"
    if not config.allow_atomic:
        raise ACCEPTED.error(
            f"delivery=exactlyOnce writes atomic batches, and stream {name!r} does not allow them; set "
            f"allow_atomic (headrace stream edit {name} --allow-atomic)"
        )
    if config.retention != "limits":
        raise ACCEPTED.error(
            f"delivery=exactlyOnce keeps markers in the stream; stream {name!r} has retention "
            f"{config.retention!r}, which removes them. It needs retention limits"
        )
    if not any(is_subset(space.encode(), subject.encode()) for subject in config.subjects):
        raise ACCEPTED.error(
            f"delivery=exactlyOnce keeps its markers on {space!r}, which stream {name!r} does not have; add "
            f"'{options.marker_prefix}.>' to its subjects, or set markerPrefix to a subject below "
            f"those it has: {', '.join(config.subjects)}"
        )
    transform = config.subject_transform
    if transform is not None and overlaps(transform.src.encode() or b">", space.encode()):
        raise ACCEPTED.error(
            f"the subject transform of stream {name!r} would rename the markers on {space!r}; let it leave "
            "them out, or set another markerPrefix"
        )
    if config.discard_new_per_subject and config.max_msgs_per_subject > 0:
        raise ACCEPTED.error(
            f"stream {name!r} refuses new messages of a subject that is full (discard_new_per_subject), and "
            "would refuse markers"
        )
    if 0 <= config.max_msg_size < _SIZE_LEAST:
        raise ACCEPTED.error(
            f"stream {name!r} takes {config.max_msg_size} bytes a message (max_msg_size); "
            f"delivery=exactlyOnce needs {_SIZE_LEAST}, for its own headers and markers"
        )
    if options.marker_prefix.startswith("$"):
        raise ACCEPTED.error("markerPrefix cannot begin with '$': such subjects are the server's")
