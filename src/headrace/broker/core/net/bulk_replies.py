"""What the broker itself publishes many at a time, as replies: those to one client come by the thousand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .route import sole_receiver
from .subscription import GuardedSubscription, Subscription

if TYPE_CHECKING:
    from .output import Output
    from .router import Router


def publish_many(router: Router, messages: Sequence[tuple[bytes, bytes]]) -> None:
    """Deliver messages without headers and replies: their subjects and payloads, in order."""
    if _published_as_one(router, messages):
        return
    same: bytes | None = None
    prefix: bytes | None = None
    subscription: Subscription | None = None
    careful: GuardedSubscription | None = None  # the sole receiver, if only by its `send`
    counted: Output[Any] | None = None  # has yet to hear of `nbytes` more payload
    nbytes = 0
    for subject, payload in messages:
        if subject != same:
            same = subject
            head, _dot, last = subject.rpartition(b".")
            if head != prefix or not last:
                prefix = head if last else None
                subscription = router.sole_receiver_below(head) if last else None
                if subscription is None:
                    prefix = None
                    subscription = sole_receiver(router.find(subject))
                careful = None
                if isinstance(subscription, GuardedSubscription):
                    subscription, careful = None, subscription
        if subscription is None:
            if careful is not None:
                careful.send(subject, b"", b"", payload)
                continue
            router.publish(subject, b"", b"", payload)
            same = prefix = None  # a sink may have changed who is there
            continue
        # Subscription.send, written out; the attributes that can wait are told once.
        size = len(payload)
        frame = b"MSG %b%b%d\r\n%b\r\n" % (subject, subscription.sid, size, payload)
        output = subscription.output
        if output is not counted:
            if counted is not None:
                counted.payload_bytes += nbytes
            counted, nbytes = output, 0
        nbytes += size
        parts = output.parts
        if not parts:
            output.touched.append(output)
        parts.append(frame)
        output.size = waiting = output.size + len(frame)
        subscription.delivered += 1
        if waiting > output.room:
            output.payload_bytes += nbytes
            counted = None
            output.session.overflow()
            same = prefix = None
    if counted is not None:
        counted.payload_bytes += nbytes


def _published_as_one(router: Router, messages: Sequence[tuple[bytes, bytes]]) -> bool:
    """Deliver all of them in one call, if they are for one inbox whose owner accepts batches."""
    head = messages[0][0].rpartition(b".")[0] if len(messages) > 1 else b""
    subscription = router.sole_receiver_below(head)
    take = None if subscription is None else subscription.send_payloads
    if take is None:
        return False
    # Each subject is `head`, a dot and one more token: counted in all of them together.
    start = b"\n" + head + b"."
    text = b"\n" + b"\n".join([subject for subject, _ in messages])
    count = len(messages)
    if text.count(start) != count or text.count(b".") != count * start.count(b"."):
        return False
    take(messages)
    return True
