"""How much waits for a query: asked of the server and the checkpoint, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...client import JetStream, connect
from ...client.net.handshake import parse_servers
from ...documents import read_json
from ...errors import ConfigurationError, HeadraceError
from ...groups import ElasticGroup, StaticGroup, elastic, static
from ...groups.errors import GroupNotFoundError
from ...groups.lag import measure
from ...identity import Sameness
from ...spark.links.control import Control
from ...spark.links.link import Link, tls_context
from ...spark.offsets import Offset, StreamHead
from ...spark.options import Connection, SourceOptions
from ...spark.slices import counted_subjects
from ...subjects import SubjectFilter
from ..checkpoints.checkpoint import checkpoint_of, read_end
from ..graph import streaming_of
from ..model import Declared, Sink, Source
from ..options import JETSTREAM, options_of_source, sink_options, source_options


class SourceState(NamedTuple):
    """How far a query is in one of its streams.

    ``sequence``: what it has read up to; ``waiting``: messages after that, of the subjects it reads;
    ``durable``: what its durable consumer says of that, None where there is none. ``error``: why the server
    did not tell. ``removed``: the most messages that are gone and that it has not read.
    """

    source: str
    stream: str
    sequence: int
    waiting: int = 0
    last: int = 0
    durable: int | None = None
    error: str = ""
    removed: int = 0


def of_sink(declared: Declared, sink: Sink) -> int:
    """How many messages wait for a sink's query, or for whom its trigger names."""
    trigger = sink.trigger
    if trigger.consumer:
        return _of_consumer(declared, sink, trigger.stream, trigger.consumer)
    if trigger.group:
        return _of_group(declared, sink, trigger.stream, trigger.group)
    states = list(of_sources(declared, sink))
    wrong = [each.error for each in states if each.error]
    if wrong:
        raise ConfigurationError(wrong[0])
    return sum(each.waiting for each in states)


def of_sources(declared: Declared, sink: Sink) -> Iterator[SourceState]:
    """How far a sink's query is in each of its streams."""
    generation = checkpoint_of(declared, sink.name).current()
    done = read_end(generation) if declared.is_local_checkpoint else None
    texts = done.offsets if done is not None else ()
    ends = [end for end in map(read_json, filter(None, texts)) if isinstance(end, dict)]
    for source in streams_of_sink(declared, sink):
        yield from _states(declared, sink, source, ends)


def streams_of_sink(declared: Declared, sink: Sink) -> list[Source]:
    """The streams that a query reads as such."""
    return [each for each in streaming_of(declared, sink) if each.format == JETSTREAM]


def _states(
    declared: Declared, sink: Sink, source: Source, ends: list[Any]
) -> Iterator[SourceState]:
    generation = checkpoint_of(declared, sink.name).current()
    raw = options_of_source(declared, source, sink.name, generation)
    options = source_options(source)
    durable = next((value for key, value in raw.items() if key.lower() == "durable"), "")
    if options.group is not None:
        yield _state_in_group(source, options, options.group.name, ends)
        return
    if options.overflow is not None:
        yield _state_beside_workers(source, options, options.overflow.consumer)
        return
    try:
        link = Link.open(options.connection)
    except HeadraceError as error:
        for stream in options.streams:
            yield SourceState(source.name, stream, 0, error=str(error))
        return
    try:
        for stream in options.streams:
            try:
                control = Control(link, stream)
                all_ = streams_of_sink(declared, sink)
                yield _state(declared, source, all_, control, durable, ends, options)
            except HeadraceError as error:
                yield SourceState(source.name, stream, 0, error=str(error))
    finally:
        link.close()


def _state_in_group(
    source: Source, options: SourceOptions, group: str, ends: list[Any]
) -> SourceState:
    """Of a member of a group: what waits for the whole group. Its sequences are those of its own stream."""
    sequence = next((int(end["seq"]) for end in ends if "seq" in end), 0)
    try:
        waiting = asyncio.run(_ask_group(options.connection, options.stream, group))
    except HeadraceError as error:
        return SourceState(source.name, options.stream, sequence, error=str(error))
    return SourceState(source.name, options.stream, sequence, waiting, sequence + waiting)


def _state_beside_workers(source: Source, options: SourceOptions, consumer: str) -> SourceState:
    """Of a query that takes a surplus: what waits for the workers and for it. It has no place of its own."""
    stream = options.stream
    try:
        waiting = _waiting(options.connection, stream, consumer)
    except HeadraceError as error:
        return SourceState(source.name, stream, 0, error=str(error))
    return SourceState(source.name, stream, 0, waiting, waiting)


def marker_spaces(declared: Declared, stream: str, counted: tuple[str, ...]) -> tuple[str, ...]:
    """Where this pipeline's sinks keep their markers in a stream, as far as that is counted as messages.

    Other programs' sinks say nowhere what their ``markerPrefix`` is.
    """
    spaces = []
    for sink in declared.sinks.values():
        options = sink_options(sink) if sink.format == JETSTREAM else None
        if options is None or options.stream != stream or options.delivery != "exactlyonce":
            continue
        space = f"{options.marker_prefix}.>"
        known = SubjectFilter(each.encode() for each in counted or (">",))
        if known.matches(f"{options.marker_prefix}.x.0".encode()):
            spaces.append(space)
    return tuple(dict.fromkeys(spaces))


def _state(
    declared: Declared,
    source: Source,
    all_: list[Source],
    control: Control,
    durable: str,
    ends: list[Any],
    options: SourceOptions,
) -> SourceState:
    head, config = control.head()
    subjects = counted_subjects(options, config)
    spaces = () if options.include_markers else marker_spaces(declared, control.stream, subjects)
    sequence = position(ends, control, head, source, all_)
    after = max(sequence, head.first_seq - 1)
    if after >= head.last_seq:
        waiting = 0
    elif subjects or head.messages != head.last_seq - head.first_seq + 1:
        waiting = control.count(after, head.last_seq, subjects)
    else:
        waiting = head.last_seq - after
    if waiting and spaces:
        waiting = max(0, waiting - control.count(after, head.last_seq, spaces))
    consumer = control.consumer_info(durable) if durable else None
    shown = consumer.num_pending if consumer is not None else None
    removed = head.first_seq - 1 - sequence if sequence and not subjects else 0
    return SourceState(
        source.name,
        control.stream,
        sequence,
        waiting,
        head.last_seq,
        shown,
        removed=max(0, removed),
    )


def position(
    ends: list[Any], control: Control, head: StreamHead, source: Source, all_: list[Source]
) -> int:
    """How far a query has read this stream in one of its sources; 0 if it has read another one.

    Offsets name the source and the streams. A source that is not there any more was renamed.

    Raises:
        ConfigurationError: an offset is damaged.
    """
    stream = control.stream
    others = {each.name for each in all_ if each is not source}
    for end in ends:
        if end.get("source") in others or end.get("stream", stream) != stream:
            continue
        raw = end.get("s", {}).get(stream) if "s" in end else end
        if not raw:
            continue
        offset = Offset.from_dict({**raw, "v": end.get("v")})
        same = control.sameness(offset, head)
        if same is not Sameness.OTHER or offset.stored_ns:
            return control.place(offset, head, same)
    return 0


def _of_consumer(declared: Declared, sink: Sink, stream: str, consumer: str) -> int:
    """What waits for a consumer: what it was not sent, and what it did not acknowledge."""
    connection = source_options(streams_of_sink(declared, sink)[0]).connection
    return _waiting(connection, stream, consumer)


def _waiting(connection: Connection, stream: str, consumer: str) -> int:
    link = Link.open(connection)
    try:
        info = Control(link, stream).consumer_info(consumer)
    finally:
        link.close()
    if info is None:
        raise ConfigurationError(
            f"stream {stream!r} has no consumer {consumer!r}, which a trigger or a source names"
        )
    return info.num_pending + info.num_ack_pending


def _of_group(declared: Declared, sink: Sink, stream: str, group: str) -> int:
    """What waits for the members of a group, an elastic or a static one."""
    connection = source_options(streams_of_sink(declared, sink)[0]).connection
    return asyncio.run(_ask_group(connection, stream, group))


def _as_client(connection: Connection) -> dict[str, Any]:
    """The connection in the client's options.

    Raises:
        ConfigurationError: the client cannot log in this way, or a certificate cannot be used.
    """
    if connection.jwt:
        raise ConfigurationError(
            "the backlog of a group is asked for with a file of credentials: give 'creds' instead of 'jwt' "
            "and 'nkeySeed'"
        )
    named = {
        "user": connection.user,
        "password": connection.password,
        "token": connection.token,
        "credentials_file": connection.creds,
        "nkey_seed": connection.nkey_seed,
        "tls": tls_context(connection, parse_servers(list(connection.servers))),
        "tls_hostname": connection.tls_hostname,
        "tls_first": connection.tls_first,
        "inbox_prefix": connection.inbox_prefix,
    }
    return {key: value for key, value in named.items() if value}


async def _ask_group(connection: Connection, stream: str, group: str) -> int:
    options: Any = _as_client(connection)
    async with connect(list(connection.servers), **options) as client:
        js = client.jetstream(prefix=connection.api_prefix)
        found = await measure(js, await _group(js, stream, group), troubles=False)
    if found.lag is None:
        raise ConfigurationError(f"how much waits in group {group!r} of {stream!r} cannot be told")
    return found.lag


async def _group(js: JetStream, stream: str, group: str) -> ElasticGroup | StaticGroup:
    for get in (elastic.get, static.get):
        try:
            return await get(js, stream, group)
        except GroupNotFoundError:
            continue  # it may be of the other kind
    raise ConfigurationError(f"stream {stream!r} has no group {group!r}, which a trigger watches")
