"""Asks services about themselves, and reads what they answer."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ...client.services.documents import PREFIX, Verb
from ...documents import DocumentError, read_typed
from ..shared.errors import Failure
from ..shared.verbs import Session

ANSWERS_MAX: Final = 10_000
"""Instances that are waited for; with more, the rest is left out, and that is said."""

_NO_RESPONDERS: Final = 503


class Endpoint(msgspec.Struct, kw_only=True):
    """An endpoint, as any client describes it: absent and null are empty. Times are nanoseconds."""

    name: str = ""
    subject: str = ""
    queue_group: str | None = None
    metadata: dict[str, str] | None = None
    num_requests: int = 0
    num_errors: int = 0
    last_error: str | None = None
    processing_time: int = 0
    average_processing_time: int = 0


class Instance(msgspec.Struct, kw_only=True):
    """An instance of a service, as any client describes it: absent and null are empty."""

    name: str
    id: str
    version: str = ""
    description: str | None = None
    metadata: dict[str, str] | None = None
    started: str = ""
    endpoints: list[Endpoint] | None = None


class Answer(NamedTuple):
    """What one instance said.

    Attributes:
        document: all of it, for programs.
        instance: what people are shown.
        took_s: seconds after the question.
    """

    document: dict[str, Any]
    instance: Instance
    took_s: float


_T = TypeVar("_T")


async def ask(
    session: Session, verb: Verb, name: str, instance: str, wait_s: float
) -> list[Answer]:
    """What the instances answer, sorted by name and id.

    Args:
        name: of a service; "" asks all of them.
        instance: its id; "" asks all of that service.
        wait_s: seconds without an answer after which there is none to come. The first one may take
            ``--timeout``.

    Raises:
        Failure: the name or the id cannot be part of a subject.
    """
    subject = _subject(verb, name, instance)
    connection = session.connection
    inbox = connection.new_inbox()
    loop = asyncio.get_running_loop()
    found: list[Answer] = []
    subscription = await connection.subscribe(inbox)
    try:
        asked = loop.time()
        await connection.publish(subject, reply=inbox)
        patience = session.where.timeout
        while len(found) < ANSWERS_MAX:
            try:
                message = await subscription.next(patience)
            except TimeoutError:
                break
            if message.headers.status == _NO_RESPONDERS:
                break
            patience = min(wait_s, session.where.timeout)
            try:
                document = read_typed(message.payload, dict[str, Any])
                said = read_typed(message.payload, Instance)
            except DocumentError as error:
                session.output.note(f"an answer on {subject} is not about a service: {error}")
                continue
            found.append(Answer(document, said, loop.time() - asked))
            if instance:
                break
        else:
            session.output.note(f"there are more than {ANSWERS_MAX:,} instances: give a NAME")
    finally:
        await subscription.unsubscribe()
    return sorted(found, key=lambda each: (each.instance.name, each.instance.id))


def _subject(verb: Verb, name: str, instance: str) -> str:
    for what, text in (("service", name), ("instance", instance)):
        if any(bad in text for bad in ". *>\t\r\n"):
            raise Failure(f"{what} {text!r}: a name has no dots, spaces or wildcards")
    return ".".join(part for part in (PREFIX, verb, name, instance) if part)
