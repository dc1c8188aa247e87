"""What is wrong in the groups of the streams: messages that can reach nobody."""

from __future__ import annotations

from ..api.errors import Errors
from ..client import JetStream, KeyValue
from ..errors import JetStreamApiError
from ..groups import ElasticGroup, GroupError, GroupNotFoundError, StaticGroup
from ..groups.record.names import elastic_stream
from ..groups.server.bucket import Records
from ..groups.watching.trouble import troubles
from ..quantities import counted
from .findings import Findings

_NOT_FOUND = Errors.STREAM_NOT_FOUND.err_code


async def look_at_groups(findings: Findings, js: JetStream, most: int | None = None) -> None:
    """Each group of each stream, also of those that are gone; ``most`` of each kind, if that is said."""
    before, groups = len(findings.found), 0
    groups += await _look_at(findings, js, Records(js, StaticGroup), most)
    groups += await _look_at(findings, js, Records(js, ElasticGroup), most)
    if groups and len(findings.found) == before:
        findings.ok("groups", f"messages reach {counted(groups, 'group')}")


async def group_of_queue(js: JetStream, stream: str) -> ElasticGroup | None:
    """The elastic group whose work queue a stream is by its name; None if it is that of none."""
    records = Records(js, ElasticGroup)
    for key in await _keys(records):
        origin, _, name = key.partition(".")
        if elastic_stream(origin, name) == stream:
            try:
                return await records.get(origin, name)
            except GroupError:
                return None  # it is being deleted, or `look_at_groups` tells that it cannot be read
    return None


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
            findings.problem(what, str(error), f"headrace kv get {records.bucket} {key}")
            continue
        groups += 1
        for each in await troubles(js, group):
            tell = findings.problem if each.is_certain else findings.note
            tell(what, each.text, each.mend)
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
