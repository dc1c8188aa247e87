"""Who has joined a group: instances answer when they are asked.

The server knows an instance only by the pulls of a member's consumer. One that waits to become a member has
no consumer, and nobody could know of it. So every instance of ours listens on a subject of its group, and
says under which name it has joined. Members of other implementations do not answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ...api.base import DocumentError, read_typed
from ...client.seam import name_of
from ..record.records import ElasticGroup, StaticGroup

if TYPE_CHECKING:
    from ...client import JetStream, Message, Subscription

WITHIN_S: Final = 0.25
"""How long answers are waited for; an instance that is busy for longer counts as absent."""

ANSWERS_MAX: Final = 10_000
"""More instances are not counted."""


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that has joined.

    Attributes:
        member: under which name.
        instance: who it is, for people: the connection's name or the host, and the process.
        generations: of what it owns; none if it stands by.
    """

    member: str
    instance: str = ""
    generations: tuple[int, ...] = ()


def instance_name(js: JetStream) -> str:
    """What this process calls itself, for people."""
    name = name_of(js.connection) or socket.gethostname()
    return f"{name}/{os.getpid()}"


async def announce(
    js: JetStream,
    kind: type[StaticGroup] | type[ElasticGroup],
    stream: str,
    group: str,
    describe: Callable[[], Present],
) -> Subscription:
    """Answer whoever asks who is there, until the subscription that is returned ends."""
    connection = js.connection

    def answer(question: Message) -> None:
        if question.reply:
            connection.publish_nowait(question.reply, msgspec.json.encode(describe()))

    return await connection.subscribe(_subject(kind, stream, group), callback=answer)


async def who_is_there(
    js: JetStream,
    kind: type[StaticGroup] | type[ElasticGroup],
    stream: str,
    group: str,
    *,
    within: float = WITHIN_S,
) -> list[Present]:
    """Ask, and collect what is answered within that time; in the order of the members' names."""
    connection = js.connection
    inbox = connection.new_inbox()
    found: list[Present] = []
    async with await connection.subscribe(inbox, pending_messages=ANSWERS_MAX) as answers:
        await connection.publish(_subject(kind, stream, group), reply=inbox)
        try:
            async with asyncio.timeout(within):
                async for message in answers:
                    try:
                        found.append(read_typed(message.payload, Present))
                    except DocumentError:
                        continue  # nobody of ours, or the server's word that nobody listens
        except TimeoutError:
            pass  # whoever is there has answered
    return sorted(found, key=lambda each: (each.member, each.instance))


def _subject(kind: type[StaticGroup] | type[ElasticGroup], stream: str, group: str) -> str:
    word = "static" if kind is StaticGroup else "elastic"
    return f"headrace.groups.{word}.{stream}.{group}"
