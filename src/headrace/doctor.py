"""Looks at a server, judged: for ``headrace doctor``, ``server check findings`` and the console alike.

``headrace.findings`` says what a finding is, and judges.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from .api.errors import Errors
from .api.pipelines import BUCKET, decode
from .api.times import format_time
from .client import JetStream, KeyValue
from .errors import JetStreamApiError, StreamNotFoundError
from .findings.consumers import judge_consumer
from .findings.finding import Findings
from .findings.pipelines import judge_pipeline
from .findings.streams import judge_stream
from .groups import ElasticGroup, GroupError, GroupNotFoundError, StaticGroup
from .groups.lag import GroupLag, Trouble, measure
from .groups.server.bucket import Records
from .groups.trouble import troubles
from .quantities import counted, duration_text

__all__ = ["look_at_all"]


PARTITIONS_SHOWN = 8
AWAY_S = 30.0
"""A member's first message has waited so long, and no instance has joined: nobody works for it."""

_NOT_FOUND = Errors.STREAM_NOT_FOUND.err_code


async def look_at_groups(findings: Findings, js: JetStream, most: int | None = None) -> None:
    """Each group of each stream, also of those that are gone; ``most`` of each kind, if that is said."""
    before, groups = len(findings.found), 0
    groups += await _look_at(findings, js, Records(js, StaticGroup), most)
    groups += await _look_at(findings, js, Records(js, ElasticGroup), most)
    if groups and len(findings.found) == before:
        findings.ok("groups", f"messages reach {counted(groups, 'group')}")


def judge_group(findings: Findings, look: GroupLag) -> None:
    """Judge one group: what keeps messages from it, and members for whom nobody works. Pure."""
    what = f"group {look.stream} > {look.group}"
    for trouble in look.troubles:
        _tell(findings, what, trouble)
    for member in look.members:
        if member.is_live or not member.lag:
            continue
        waits = [
            each.oldest_s
            for each in look.partitions
            if each.member == member.member and each.oldest_s is not None
        ]
        oldest_s = max(waits, default=look.oldest_s or 0.0)
        if oldest_s <= AWAY_S:
            continue
        shown = ", ".join(map(str, member.partitions[:PARTITIONS_SHOWN]))
        more = len(member.partitions) - PARTITIONS_SHOWN
        findings.problem(
            what,
            f"nobody works for member {member.member}: {counted(member.lag, 'message')} wait in its "
            f"partitions {shown}{f' and {more} more' if more > 0 else ''}, the first for "
            f"{duration_text(oldest_s)}",
            f"start an instance of {member.member}, or take it out: headrace group {look.kind} drop "
            f"{look.stream} {look.group} {member.member}"
            if look.kind == "elastic"
            else f"start an instance of {member.member}",
            name="member-away",
            since=format_time(look.at_ns - int(oldest_s * 1e9)),
            partitions=len(member.partitions),
            lag=member.lag,
        )


def _tell(findings: Findings, what: str, trouble: Trouble) -> None:
    tell = findings.problem if trouble.is_certain else findings.note
    tell(what, trouble.text, trouble.mend, name="group-unreachable", kind=trouble.kind)


async def _look_at(
    findings: Findings,
    js: JetStream,
    records: Records[StaticGroup] | Records[ElasticGroup],
    most: int | None,
) -> int:
    groups, keys = 0, await _keys(records)
    for key in keys[:most]:
        stream, _, name = key.partition(".")
        what = f"group {stream} > {name}"
        try:
            group = await records.get(stream, name)
        except GroupNotFoundError:
            continue  # it is being deleted
        except GroupError as error:
            mend = f"headrace kv get {records.bucket} {key}"
            findings.problem(what, str(error), mend, name="group-record")
            continue
        groups += 1
        try:
            judge_group(findings, await measure(js, group))
        except GroupNotFoundError:
            for each in await troubles(js, group):
                _tell(findings, what, each)
    if most is not None and len(keys) > most:
        left = counted(len(keys) - most, "group")
        findings.note("groups", f"{left} more were not looked at", "headrace doctor")
    return groups


async def _keys(records: Records[StaticGroup] | Records[ElasticGroup]) -> list[str]:
    try:
        bucket: KeyValue = await records.open()
        return sorted(await bucket.keys())
    except GroupNotFoundError:
        return []  # no group was ever created
    except JetStreamApiError as error:
        if error.err_code != _NOT_FOUND:
            raise
        return []  # the bucket was deleted meanwhile


async def look_at_pipelines(findings: Findings, js: JetStream) -> None:
    """Judge each pipeline that has run within the last day. A server without any says nothing."""
    before, pipelines = len(findings.found), 0
    try:
        stream = await js.stream(f"KV_{BUCKET}")
        messages = await stream.get_last_messages(f"$KV.{BUCKET}.>")
    except StreamNotFoundError:
        return  # no pipeline ever told this server
    except JetStreamApiError as error:
        findings.note("pipelines", f"they could not be looked at: {error.description}")
        return
    for message in messages:
        record = decode(message.payload)
        if record is not None:
            pipelines += 1
            judge_pipeline(findings, record, time.time())
    if pipelines and len(findings.found) == before:
        findings.ok("pipelines", f"nothing wrong in {counted(pipelines, 'pipeline')}")


async def look_at_streams(findings: Findings, js: JetStream) -> None:
    """Judge each stream, and each of its consumers."""
    streams, before = 0, len(findings.found)
    async for stream in js.streams():
        streams += 1
        consumers = [each async for each in js.consumers(stream.config.name)]
        now = datetime.now(UTC)
        judge_stream(findings, stream, consumers)
        for consumer in consumers:
            judge_consumer(findings, consumer, now)
    if all(each.grade == "ok" for each in findings.found[before:]):
        findings.ok(
            "streams",
            f"nothing wrong in {counted(streams, 'stream')}" if streams else "there are none",
        )


async def look_at_all(findings: Findings, js: JetStream) -> None:
    """Judge the streams, consumers, groups and pipelines of an account."""
    await look_at_streams(findings, js)
    await look_at_groups(findings, js)
    await look_at_pipelines(findings, js)
