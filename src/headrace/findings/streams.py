"""Findings about a stream: full, growing, lost, unread, being moved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..api.consumers import ConsumerInfo
from ..api.roles import RENAMED_TO, REPARTITIONED_TO
from ..api.streams import StreamConfig, StreamInfo
from ..quantities import bytes_text, counted, duration_text, moment_of
from .finding import Findings

FULL: Final = 0.9
"""The part of a limit from which on it is told."""

SILENT_S: Final = 300.0
"""A copy that is behind and was silent for longer is told."""

_AHEAD_S: Final = 1.0
_BUCKETS: Final = ("KV_", "OBJ_")
_ENDLESS_BYTES: Final = 1 << 30


def judge_stream(findings: Findings, stream: StreamInfo, consumers: Sequence[ConsumerInfo]) -> None:
    """Judge one stream, with its consumers."""
    config, state = stream.config, stream.state
    name = config.name
    what = f"stream {name}"
    if state.lost is not None and state.lost.msgs:
        lost = len(state.lost.msgs)
        text = f"{counted(lost, 'message')} found damaged, and lost"
        findings.problem(
            what, text, f"headrace stream info {name}", name="lost-messages", messages=lost
        )
    if state.messages and stream.ts:
        ahead = (moment_of(state.last_ts) - moment_of(stream.ts)).total_seconds()
        if ahead > _AHEAD_S:
            text = (
                f"its newest message is from {duration_text(ahead)} later than the server's clock, which "
                "was set back: messages stay longer until it has caught up"
            )
            findings.problem(
                what, text, "timedatectl set-ntp true", name="ahead-of-clock", seconds=ahead
            )
    _judge_room(findings, stream)
    if config.retention != "limits" and state.messages and not consumers:
        why = "a work queue keeps" if config.retention == "workqueue" else "interest keeps"
        text = f"{counted(state.messages, 'message')} and no consumer: {why} them for good"
        mend = f"headrace consumer create {name} NAME"
        group = group_of_queue(config)
        if group is not None:
            # Its members make their consumers themselves, and a stranger's would keep them from it.
            text = (
                f"{counted(state.messages, 'message')} and no member of group {group.name!r} of stream "
                f"{group.stream!r} at work: they wait until one is"
            )
            mend = (
                f"headrace group elastic info {group.stream} {group.name}    names its members: start "
                "the programs that join as these, or add some"
            )
        findings.problem(
            what,
            text,
            mend,
            name="kept-for-nobody",
            since=state.first_ts,
            messages=state.messages,
        )
    endless = config.max_age == 0 and config.max_bytes <= 0 and config.max_msgs <= 0
    endless = endless and config.max_msgs_per_subject <= 0 and config.retention == "limits"
    is_own = config.mirror is None and not name.startswith(_BUCKETS)
    if endless and is_own and state.bytes > _ENDLESS_BYTES:
        text = f"{bytes_text(state.bytes)}, and nothing limits it"
        mend = f"headrace stream edit {name} --max-age 30d"
        findings.note(what, text, mend, name="endless-stream", bytes=state.bytes)
    _judge_copies(findings, stream)
    _judge_moving(findings, stream, sum(c.num_pending + c.num_ack_pending for c in consumers))
    for peer in stream.cluster.replicas if stream.cluster else ():
        if peer.offline or not peer.current:
            state_text = "offline" if peer.offline else "behind"
            findings.problem(
                what, f"replica {peer.name} is {state_text}", name="replica-away", lag=peer.lag
            )


class QueueGroup(NamedTuple):
    """An elastic group, by its stream and its name."""

    stream: str
    name: str


def group_of_queue(config: StreamConfig) -> QueueGroup | None:
    """The elastic group whose work queue a stream is: a copy of one stream, by the number of a partition."""
    if config.retention != "workqueue" or len(config.sources) != 1:
        return None
    (origin,) = config.sources
    numbered = any(
        each.dest.lower().startswith("{{partition(") for each in origin.subject_transforms
    )
    if not numbered or not config.name.startswith(f"{origin.name}-"):
        return None
    return QueueGroup(origin.name, config.name.removeprefix(f"{origin.name}-"))


def _judge_room(findings: Findings, stream: StreamInfo) -> None:
    config, state = stream.config, stream.state
    if config.discard != "new":
        return
    for held, most, text in (
        (state.messages, config.max_msgs, f"{state.messages:,} of {config.max_msgs:,} messages"),
        (
            state.bytes,
            config.max_bytes,
            f"{bytes_text(state.bytes)} of {bytes_text(config.max_bytes)}",
        ),
    ):
        if most > 0 and held >= most * FULL:
            mend = (
                f"headrace stream purge {config.name} --keep N    or: "
                f"headrace stream edit {config.name} --max-…"
            )
            findings.problem(
                f"stream {config.name}",
                f"{text}: full, or nearly; it refuses what comes",
                mend,
                name="stream-full",
                held=held,
                limit=most,
            )


def _judge_copies(findings: Findings, stream: StreamInfo) -> None:
    name = stream.config.name
    for origin in (*([stream.mirror] if stream.mirror else []), *stream.sources):
        if origin.error:
            text = f"the copy of {origin.name} fails: {origin.error.get('description')}"
            mend = f"headrace stream info {name}"
            findings.problem(f"stream {name}", text, mend, name="copy-fails", lag=origin.lag)
        elif origin.lag and origin.active > SILENT_S:
            silent = duration_text(origin.active)
            text = (
                f"{counted(origin.lag, 'message')} behind {origin.name}, which was silent {silent}"
            )
            findings.problem(
                f"stream {name}",
                text,
                f"headrace stream info {origin.name}",
                name="copy-behind",
                lag=origin.lag,
                silent_s=origin.active,
            )


def _judge_moving(findings: Findings, stream: StreamInfo, unhandled: int) -> None:
    """Tell what ``stream rename`` and ``stream repartition`` have left; ``unhandled``: what its consumers
    have not handled yet."""
    name, told = stream.config.name, stream.config.metadata
    what = f"stream {name}"
    if to := told.get(RENAMED_TO):
        text = f"is being renamed to {to}: it takes no messages, and its consumers pause"
        findings.problem(what, text, f"headrace stream rename {name} {to}", name="being-renamed")
    if to := told.get(REPARTITIONED_TO):
        text = f"takes no messages any more: {to} takes them, with other partitions"
        mend = ""
        if unhandled:
            text += f"; its consumers have {unhandled:,} left"
        else:
            mend = (
                f"headrace stream info {to}    if that has the subjects: headrace stream rm {name}"
            )
        findings.note(what, text, mend, name="repartitioned", unhandled=unhandled)
