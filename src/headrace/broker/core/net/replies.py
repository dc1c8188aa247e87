"""Replies of what clients publish: which subjects they may name, and the answer when nobody is there."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..auth.permissions import Permissions
    from .router import Router

__all__ = [
    "ANOTHERS_REPLY",
    "RESERVED",
    "RESERVED_REPLY",
    "is_refused",
    "say_nobody",
]

RESERVED_REPLY: Final = b"$JS.ACK."  # such a reply would acknowledge somebody's message,
ANOTHERS_REPLY: Final = b"_R_."  # and such a one answer somebody in another account
RESERVED: Final = (RESERVED_REPLY, ANOTHERS_REPLY)
_INBOX: Final = b"_INBOX"  # a stream that keeps all answers means these, too


def is_refused(reply: bytes, router: Router, permissions: Permissions | None) -> bool:
    """Whether one may not name this reply.

    Who may not publish to a subject may not have an answer sent there either, if the broker itself would
    take it, as into a stream: it would do what a publish does. Elsewhere anybody may name any reply.
    """
    if reply.startswith(RESERVED):
        return True
    return (
        permissions is not None
        and not reply.startswith(_INBOX)
        and bool(router.find(reply).sinks)
        and not permissions.may_publish(reply)
    )


def say_nobody(router: Router, client_id: int, subject: bytes, reply: bytes) -> None:
    """Answer a request that nobody received, on the requester's own subscription."""
    route = router.find(reply)
    for subscription in chain(route.plain, *route.groups):
        if subscription.client_id == client_id:
            status = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
            subscription.send(reply, b"", status, b"")
            return
