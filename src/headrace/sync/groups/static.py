"""The functions of ``headrace.groups.static`` for threads."""

from __future__ import annotations

from typing import Unpack

from ...api.consumers import ConsumerConfig
from ...client.blocking.jetstream import JetStream
from ...groups import static as aio
from ...groups.blocking import GroupMessage, Handler, Membership, joined, verb
from ...groups.member.config import JoinOptions
from ...groups.record.records import StaticGroup

__all__ = ["active_members", "create", "delete", "get", "is_active", "join", "list", "step_down"]


create = verb(aio.create)
get = verb(aio.get)
list = verb(aio.list)  # noqa: A001
delete = verb(aio.delete)
active_members = verb(aio.active_members)
is_active = verb(aio.is_active)
step_down = verb(aio.step_down)


def join(
    js: JetStream,
    stream: str,
    group: str,
    member: str,
    handler: Handler | None = None,
    config: ConsumerConfig | None = None,
    **options: Unpack[JoinOptions[GroupMessage]],
) -> Membership[StaticGroup]:
    """One instance of a member at work: ``with static.join(…) as membership``.

    Several instances may join as one member; one of them is active, the others stand by. Nothing is asked
    of the server until it is entered, which raises NotAMemberError for a name that the group does not list.
    See ``Membership`` for what it does, its arguments and its errors.
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
