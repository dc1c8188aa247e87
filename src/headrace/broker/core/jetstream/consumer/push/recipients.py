"""The listeners on a deliver subject, as the recipients of a delivery pass."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from ......limits import INGEST_PENDING_BYTES_MAX
from ......message import StoredRow
from ....net.subscription import Outgoing
from ....ports.bus import Target
from ..delivery_pass import PassEnd
from ..sender import Sender
from ..view import ConsumerView
from .push import Push
from .window import FlowWindow

_REST_NS: Final = 20_000_000


class PushRecipients:
    """Sends to whoever listens, as far as flow control and the rate allow."""

    def __init__(self, consumer: ConsumerView, sender: Sender, push: Push) -> None:
        self._storage = consumer.context.storage
        self._resolve = consumer.context.bus.resolve
        self._sender = sender
        self._push = push
        self._target: Target | None = None

    # -- the pass

    def begin(self) -> PassEnd | None:
        if self._storage.pending_bytes > INGEST_PENDING_BYTES_MAX:
            # What is pushed may end in another stream: it waits for the disk as publishers do.
            self._push.rest_until(self._sender.now_ns + _REST_NS)
            return PassEnd.HELD
        self._target = self._resolve(self._push.subject)
        return None

    def end(self) -> None:
        if self._sender.delivered:
            self._push.delivered(self._sender.now_ns)

    def obstacle(self) -> PassEnd | None:
        push = self._push
        if not push.active:
            return PassEnd.NO_REQUESTS
        if push.group:
            self._target = self._resolve(push.subject)  # each message is another member's
        if self._target is None:
            return PassEnd.NO_REQUESTS
        if self._target.blocked:
            return PassEnd.BLOCKED
        if push.is_metered and push.is_held(self._sender.now_ns):
            return PassEnd.HELD
        return PassEnd.BUDGET if self._sender.left <= 0 else None

    def wanted(self) -> int:
        return self._sender.left

    def stopped(self) -> PassEnd:
        return PassEnd.NO_REQUESTS

    # -- new messages

    def hand_out(self, rows: list[StoredRow]) -> PassEnd | None:
        push = self._push
        if push.rate is not None or push.group:
            return self._send_each(rows)
        if push.window is not None:
            self._send_by_window(rows, push.window)
        else:
            self._send(rows)
        return None

    def _send(self, rows: list[StoredRow]) -> int:
        """Send messages, up to the last one that somebody listens to; returns how many went out."""
        sender, target = self._sender, self._target
        assert target is not None
        if target.steady:
            sender.send_stored(target, rows)
            return len(rows)
        sent: list[StoredRow] = []
        target.send_many(self._while_listened(rows, sent))
        if sent:
            sender.record(sent)
        return len(sent)

    def _while_listened(self, rows: list[StoredRow], sent: list[StoredRow]) -> Iterator[Outgoing]:
        """What is sent of messages until nobody listens; ``sent`` says how far that went."""
        push = self._push
        for row, message in zip(rows, self._sender.outgoing(rows), strict=True):
            if not push.active:
                return
            sent.append(row)
            yield message

    def _send_by_window(self, rows: list[StoredRow], window: FlowWindow) -> None:
        """Send messages in pieces: each up to where it is time to ask, or to wait."""
        start, behind = 0, 0
        ends = list(accumulate(self._sizes(rows)))
        while start < len(rows) and not window.is_full:
            stop = min(bisect_left(ends, behind + window.slack) + 1, len(rows))
            sent = self._send(rows[start:stop])
            if sent:
                self._push.sent(ends[start + sent - 1] - behind, self._sender.now_ns)
            if start + sent < stop:
                return
            start, behind = stop, ends[stop - 1]

    def _sizes(self, rows: list[StoredRow]) -> list[int]:
        """What each of these counts when it is sent, with its reply subject."""
        sender = self._sender
        size = sender.reply_size(rows)
        if size is not None:
            return [size + len(row[1]) + len(row[2]) + len(row[3]) for row in rows]
        return [sum(map(len, message)) for message in sender.outgoing(rows)]

    def _send_each(self, rows: list[StoredRow]) -> PassEnd | None:
        """Send messages one by one: each waits for its time, or is another member's."""
        push, sender = self._push, self._sender
        for row in rows:
            end = self.obstacle()
            if end is not None:
                return end
            assert self._target is not None
            _, subject, headers, payload, _ = row
            reply = sender.reply_of(row)
            self._target.send(subject, reply, headers, payload)
            sender.record_one(row)
            if push.is_metered:
                size = len(subject) + len(reply) + len(headers) + len(payload)
                push.sent(size, sender.now_ns)
        return None

    # -- redeliveries

    def resend(self, row: StoredRow) -> PassEnd | None:
        sender = self._sender
        assert self._target is not None
        message = sender.redelivery(row)
        sender.record_redelivery(row[0])
        self._target.send(*message)
        if self._push.is_metered:
            self._push.sent(sum(map(len, message)), sender.now_ns)
        return None
