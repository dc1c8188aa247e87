"""What a group is at the moment: its record, read from the bucket as the leader has it."""

from __future__ import annotations

import base64

from ...api import base
from ...api.envelope import decode_response
from ...api.errors import Errors
from ...api.messages import GetMessageRequest, GetMessageResponse
from ...errors import ConfigurationError, JetStreamApiError
from ...groups.record.names import ELASTIC_BUCKET, STATIC_BUCKET, key_of
from ...groups.record.records import ElasticGroup, StaticGroup
from ...groups.server.consumers import stream_of
from ..frames.rows import is_deletion
from ..links.link import Link
from ..options.group import GroupOptions

Group = StaticGroup | ElasticGroup

_MISSING = frozenset({Errors.STREAM_NOT_FOUND.err_code, Errors.NO_MESSAGE_FOUND.err_code})


def read_record(link: Link, stream: str, options: GroupOptions) -> Group:
    """The group's record.

    Raises:
        ConfigurationError: there is no such group.
        GroupRecordError: the record cannot be read.
    """
    bucket = STATIC_BUCKET if options.kind == "static" else ELASTIC_BUCKET
    request = GetMessageRequest(last_by_subj=f"$KV.{bucket}.{key_of(stream, options.name)}")
    try:
        answer = link.request(
            link.api("STREAM", "MSG", "GET", f"KV_{bucket}"), base.encode(request)
        )
        message = decode_response(answer.payload, GetMessageResponse).message
    except JetStreamApiError as error:
        if error.err_code not in _MISSING:
            raise
        raise _no_group(stream, options) from None
    if is_deletion(base64.b64decode(message.hdrs)):
        raise _no_group(stream, options)
    kind = StaticGroup if options.kind == "static" else ElasticGroup
    return kind.decode(stream, options.name, base64.b64decode(message.data), message.seq)


def _no_group(stream: str, options: GroupOptions) -> ConfigurationError:
    return ConfigurationError(
        f"jetstream source: stream {stream!r} has no {options.kind} group {options.name!r}; make one with "
        f"headrace group {options.kind} create"
    )


def member_of(group: Group, options: GroupOptions) -> str:
    """The member that the query is. Raises ConfigurationError if it does not say which."""
    if options.member:
        return options.member
    members = sorted(group.assignment())
    if len(members) != 1:
        raise ConfigurationError(
            f"jetstream source: group {options.name!r} has {len(members)} members"
            f"{': ' + ', '.join(members) if members else ''}; say with 'member' which of them the query is"
        )
    return members[0]


def work_stream(stream: str, options: GroupOptions) -> str:
    """The stream that members of this group read."""
    if options.kind == "static":
        return stream
    return stream_of(ElasticGroup(stream, options.name, 1))
