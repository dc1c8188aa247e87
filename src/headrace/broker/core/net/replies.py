"""Reply subjects of published messages: which are refused, and the status when nobody is there."""

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
    """Whether a client may not use this reply subject.

    A reply subject that the broker itself receives, such as a stream's, needs permission to publish there:
    the answer would do what a publish does. Any other reply subject is allowed.
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
    """Tell the requester, on its own subscription, that nobody received the request."""
    route = router.find(reply)
    for subscription in chain(route.plain, *route.groups):
        if subscription.client_id == client_id:
            status = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
            subscription.send(reply, b"", status, b"")
            return
