"""The functions of ``headrace.groups.elastic`` for threads."""

from __future__ import annotations

from typing import Unpack

from ...api.consumers import ConsumerConfig
from ...client.blocking.jetstream import JetStream
from ...groups import elastic as aio
from ...groups.blocking import GroupMessage, Handler, Membership, joined, verb
from ...groups.member.config import JoinOptions
from ...groups.record.records import ElasticGroup

__all__ = [
    "active_members",
    "add_members",
    "change",
    "create",
    "delete",
    "delete_mappings",
    "drop_members",
    "get",
    "is_active",
    "join",
    "list",
    "set_mappings",
    "step_down",
    "undo_change",
    "update",
]


create = verb(aio.create)
update = verb(aio.update)
change = verb(aio.change)
undo_change = verb(aio.undo_change)
get = verb(aio.get)
list = verb(aio.list)  # noqa: A001
delete = verb(aio.delete)
active_members = verb(aio.active_members)
is_active = verb(aio.is_active)
step_down = verb(aio.step_down)
add_members = verb(aio.add_members)
drop_members = verb(aio.drop_members)
set_mappings = verb(aio.set_mappings)
delete_mappings = verb(aio.delete_mappings)


def join(
    js: JetStream,
    stream: str,
    group: str,
    member: str,
    handler: Handler | None = None,
    config: ConsumerConfig | None = None,
    **options: Unpack[JoinOptions[GroupMessage]],
) -> Membership[ElasticGroup]:
    """One instance of a member at work: ``with elastic.join(…) as membership``.

    Several instances may join as one member; one of them is active, the others stand by. Whoever is no
    member yet waits until it is added. Nothing is asked of the server until it is entered. See
    ``Membership`` for what it does, its arguments and its errors.
    """
    return joined(
        js,
        aio.join,
        stream,
        group,
        member,
        handler,
        config,
        **options,
    )
