"""How an idle query waits for news."""

from __future__ import annotations

import time

from ...api import base
from ...api.acks import parse_ack_subject
from ...api.consumers import PullRequest
from ..links.control import Control


class Tail:
    """Detects the first message after a sequence: an ephemeral consumer, headers only, one pull."""

    def __init__(self, control: Control, seq: int, inactive_s: float) -> None:
        self._control = control
        self._link = control.link
        self._seq = seq
        info = control.create_ephemeral(
            deliver_policy="by_start_sequence",
            opt_start_seq=seq + 1,
            headers_only=True,
            inactive_threshold=inactive_s,
            description="headrace: a Spark query waiting for news",
        )
        self._name = info.name
        self._subject = control.link.api("CONSUMER", "MSG", "NEXT", control.stream, info.name)
        self._inbox, self._sid = control.link.subscribe()

    def stands_at(self, control: Control, seq: int) -> bool:
        """Whether this consumer waits for the first message after ``seq``."""
        return self._link is control.link and self._seq == seq

    def wait(self, timeout_s: float) -> bool:
        """Returns True when a message is available; False after ``timeout_s`` seconds."""
        self._link.publish(
            self._subject, base.encode(PullRequest(batch=1, expires=timeout_s)), self._inbox
        )
        deadline = time.monotonic() + timeout_s + 1.0
        while (left := deadline - time.monotonic()) > 0:
            frames = self._link.poll(left)
            for frame in frames:
                if frame[3]:  # this message was consumed: the next wait begins behind it
                    self._seq = parse_ack_subject(frame[3].decode()).stream_seq
                    return True
            if frames:  # a status: the pull has ended, without a message, or the consumer is gone
                if not frames[-1][4].startswith(b"NATS/1.0 408"):
                    self._seq = -1
                return False
        return False

    def close(self) -> None:
        """Remove the consumer, if the connection that created it is still there."""
        if not self._link.closed:
            self._link.unsubscribe(self._sid)
            self._control.delete_consumer(self._name)
