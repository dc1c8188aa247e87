"""Whether a session may subscribe, in the words of nats-server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....subjects import is_valid_pattern

if TYPE_CHECKING:
    from ..options import HubOptions
    from .session import Session

__all__ = ["shown", "why_not"]


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
