"""What a session is refused, in the words of nats-server: subscriptions, replies, requests nobody hears."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from ....subjects import is_valid_pattern

if TYPE_CHECKING:
    from ..auth.permissions import Permissions
    from ..options import HubOptions
    from .router import Router
    from .session import Session

__all__ = [
    "ANOTHERS_REPLY",
    "RESERVED",
    "RESERVED_REPLY",
    "is_refused",
    "say_nobody",
    "shown",
    "why_not",
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


def why_not(session: Session, options: HubOptions, pattern: bytes, queue: bytes) -> str:
    """Why a subscription is refused; empty if it is not."""
    count, most = len(session.subscriptions), session.identity.subscriptions_max
    is_full = count >= options.subscriptions_max or 0 <= most <= count
    if is_full or not session.account.may_subscribe:
        return "maximum subscriptions exceeded"
    if not is_valid_pattern(pattern):
        return "Invalid Subject"
    if pattern.count(b".") >= options.subscription_tokens_max:
        return f'Permissions Violation for Subscription to "{shown(pattern)}", too many tokens'
    permissions = session.identity.permissions
    if permissions is not None and not permissions.may_subscribe(pattern, queue):
        using = f' using queue "{shown(queue)}"' if queue else ""
        return f'Permissions Violation for Subscription to "{shown(pattern)}"{using}'
    return ""


def shown(subject: bytes) -> str:
    """A subject in a text."""
    return subject.decode(errors="backslashreplace")
