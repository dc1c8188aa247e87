"""What is wrong in the streams: full, growing, lost, unread; consumers that stand still."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ..api.consumers import ConsumerInfo
from ..api.roles import shows_progress
from ..api.streams import StreamInfo
from ..client.jetstream_context import JetStream
from ..groups import ElasticGroup
from ..quantities import bytes_text, counted, duration_text, moment_of
from .findings import Findings
from .groups import group_of_queue
from .moving import look_at_moving

_FULL: Final = 0.9
_STANDS_STILL_S: Final = 300.0
_AHEAD_S: Final = 1.0
_BUCKETS: Final = ("KV_", "OBJ_")
_ENDLESS_BYTES: Final = 1 << 30


async def look_at_streams(findings: Findings, js: JetStream) -> None:
    """Each stream, and each of its consumers."""
    now = datetime.now(UTC)
    streams, before = 0, len(findings.found)
    async for stream in js.streams():
        streams += 1
        consumers = [each async for each in js.consumers(stream.config.name)]
        is_unread = _is_unread(stream, consumers)
        group = await group_of_queue(js, stream.config.name) if is_unread else None
        look_at_stream(findings, stream, consumers, group)
        for consumer in consumers:
            look_at_consumer(findings, consumer, now)
    if len(findings.found) == before:
        findings.ok(
            "streams",
            f"nothing wrong in {counted(streams, 'stream')}" if streams else "there are none",
        )


def _is_unread(stream: StreamInfo, consumers: list[ConsumerInfo]) -> bool:
    return stream.config.retention != "limits" and stream.state.messages > 0 and not consumers


def look_at_stream(
    findings: Findings,
    stream: StreamInfo,
    consumers: list[ConsumerInfo],
    group: ElasticGroup | None = None,
) -> None:
    """One stream; ``group``: the one whose work queue it is. Pure."""
    config, state = stream.config, stream.state
    name = config.name
    what = f"stream {name}"
    if state.lost is not None and state.lost.msgs:
        text = f"{counted(len(state.lost.msgs), 'message')} found damaged, and lost"
        findings.problem(what, text, f"headrace stream info {name}")
    if state.messages and stream.ts:
        ahead = (moment_of(state.last_ts) - moment_of(stream.ts)).total_seconds()
        if ahead > _AHEAD_S:
            text = (
                f"its newest message is from {duration_text(ahead)} later than the server's clock, which "
                "was set back: messages stay longer until it has caught up"
            )
            findings.problem(what, text, "timedatectl set-ntp true")
    refuses = config.discard == "new"
    for held, most, text in (
        (state.messages, config.max_msgs, f"{state.messages:,} of {config.max_msgs:,} messages"),
        (
            state.bytes,
            config.max_bytes,
            f"{bytes_text(state.bytes)} of {bytes_text(config.max_bytes)}",
        ),
    ):
        if refuses and most > 0 and held >= most * _FULL:
            mend = (
                f"headrace stream purge {name} --keep N    or: headrace stream edit {name} --max-…"
            )
            findings.problem(what, f"{text}: full, or nearly; it refuses what comes", mend)
    if _is_unread(stream, consumers):
        _look_at_unread(findings, stream, group)
    endless = config.max_age == 0 and config.max_bytes <= 0 and config.max_msgs <= 0
    endless = endless and config.max_msgs_per_subject <= 0 and config.retention == "limits"
    is_own = config.mirror is None and not name.startswith(_BUCKETS)
    if endless and is_own and state.bytes > _ENDLESS_BYTES:
        text = f"{bytes_text(state.bytes)}, and nothing limits it"
        findings.note(what, text, f"headrace stream edit {name} --max-age 30d")
    for origin in (*([stream.mirror] if stream.mirror else []), *stream.sources):
        if origin.error:
            text = f"the copy of {origin.name} fails: {origin.error.get('description')}"
            findings.problem(what, text, f"headrace stream info {name}")
        elif origin.lag and origin.active > _STANDS_STILL_S:
            silent = duration_text(origin.active)
            text = (
                f"{counted(origin.lag, 'message')} behind {origin.name}, which was silent {silent}"
            )
            findings.problem(what, text, f"headrace stream info {origin.name}")
    look_at_moving(findings, stream, sum(c.num_pending + c.num_ack_pending for c in consumers))
    for peer in stream.cluster.replicas if stream.cluster else ():
        if peer.offline or not peer.current:
            findings.problem(
                what, f"replica {peer.name} is {'offline' if peer.offline else 'behind'}"
            )


def _look_at_unread(findings: Findings, stream: StreamInfo, group: ElasticGroup | None) -> None:
    """Messages that are kept for consumers, and no consumer."""
    name, messages = stream.config.name, counted(stream.state.messages, "message")
    what = f"stream {name}"
    if group is None:
        why = "a work queue keeps" if stream.config.retention == "workqueue" else "interest keeps"
        text = f"{messages} and no consumer: {why} them for good"
        findings.problem(what, text, f"headrace consumer create {name} NAME")
        return
    # Its members make their consumers themselves, and a stranger's would keep them from it.
    text = (
        f"{messages} and no member of group {group.name!r} of stream {group.stream!r} at work: they wait "
        "until one is"
    )
    if names := sorted(group.assignment()):
        mend = f"start the programs that join as {', '.join(names)}"
    else:
        mend = f"headrace group elastic add {group.stream} {group.name} NAME, and start who joins as it"
    findings.problem(what, text, mend)


def look_at_consumer(findings: Findings, consumer: ConsumerInfo, now: datetime) -> None:
    """One consumer. Pure."""
    config, stream, name = consumer.config, consumer.stream_name, consumer.name
    what = f"consumer {stream} > {name}"
    most = config.max_ack_pending
    if consumer.paused:
        text = f"paused for {duration_text(consumer.pause_remaining)} more, {consumer.num_pending:,} waiting"
        findings.note(what, text, f"headrace consumer resume {stream} {name}")
        return
    if most > 0 and consumer.num_ack_pending >= most and consumer.num_pending:
        text = f"{counted(most, 'message')} without an answer, as many as allowed: it stands still"
        mend = f"headrace consumer edit {stream} {name} --max-pending {most * 2}"
        findings.problem(what, text, f"acknowledge them, or: {mend}")
    if not consumer.num_pending:
        return
    looks = f"headrace consumer info {stream} {name}"
    if config.deliver_subject:
        if not consumer.push_bound:
            waiting = counted(consumer.num_pending, "message")
            text = f"nobody listens on {config.deliver_subject}, {waiting} waiting"
            findings.problem(what, text, f"start who handles them; {looks}")
        return
    # Who shows a position there reads by other ways; who has messages in hand asks when they are done.
    if consumer.num_waiting or consumer.num_ack_pending or shows_progress(config.metadata):
        return
    last = consumer.delivered.last_active
    since = moment_of(last if last and not last.startswith("0001") else consumer.created)
    idle = (now - since).total_seconds()
    if idle > _STANDS_STILL_S:
        waiting = counted(consumer.num_pending, "message")
        text = f"nobody has pulled for {duration_text(idle)}, {waiting} waiting"
        findings.problem(what, text, f"start who handles them; {looks}")
