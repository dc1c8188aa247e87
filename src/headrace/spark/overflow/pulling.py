"""Pull requests with a mark, and the messages that come for them."""

from __future__ import annotations

from typing import Final

from ...api import base
from ...api.acks import parse_ack_subject
from ...api.consumers import ConsumerConfig, PullRequest
from ...errors import (
    ConfigurationError,
    ConnectionClosedError,
    NoRespondersError,
    RequestTimeoutError,
)
from ...wire import Frame
from ..links.control import Control
from ..options.overflow import OverflowOptions

_EXPIRED: Final = (b"404", b"408")
_MARGIN_S: Final = 5.0  # a server ends a request when its time is over; later it has gone


class Pull:
    """Collects what the server hands out. A failed request loses nothing of what came before.

    Args:
        stream, overflow: where from, and from which marks.
        expires_s: how long a request waits.
    """

    def __init__(self, stream: str, overflow: OverflowOptions, expires_s: float) -> None:
        self._stream = stream
        self._overflow = overflow
        self._expires_s = expires_s
        self._deliveries: dict[int, int] = {}
        self._prefix = ""

    def found(self) -> tuple[dict[int, int], str]:
        """The messages that came: the consumer's sequence of each stream's, and how ack subjects begin."""
        return dict(self._deliveries), self._prefix

    def forget(self) -> None:
        """They are in a batch now."""
        self._deliveries.clear()

    def take(self, control: Control, config: ConsumerConfig, most: int) -> None:
        """Ask for messages once, until there are ``most`` or the request expires.

        Raises:
            ConfigurationError: the server refuses the request for good, or has no such consumer any more.
            ConnectionClosedError, RequestTimeoutError, NoRespondersError: it did not come to its end.
        """
        wanted = most - len(self._deliveries)
        if config.max_batch > 0:
            wanted = min(wanted, config.max_batch)
        if wanted <= 0:
            return
        expires_s = self._expires_s
        if config.max_expires > 0:
            expires_s = min(expires_s, config.max_expires)
        request = PullRequest(
            batch=wanted,
            expires=expires_s,
            group=self._overflow.group or config.priority_groups[0],
            min_pending=self._overflow.min_pending,
            min_ack_pending=self._overflow.min_ack_pending,
        )
        link = control.link
        inbox, sid = link.subscribe()
        try:
            subject = link.api("CONSUMER", "MSG", "NEXT", self._stream, self._overflow.consumer)
            link.publish(subject, base.encode(request), inbox)
            came = 0
            while came < wanted:
                frames = link.poll(expires_s + _MARGIN_S)
                if not frames:
                    link.close()
                    raise ConnectionClosedError("the server did not end a pull request")
                messages = [frame for frame in frames if frame[3]]
                self._keep(messages)
                came += len(messages)
                statuses = [frame for frame in frames if not frame[3]]
                if any([self._is_end(control, frame) for frame in statuses]):  # noqa: C419
                    return
        finally:
            if not link.closed:
                link.unsubscribe(sid)

    def _keep(self, messages: list[Frame]) -> None:
        for frame in messages:
            reply = frame[3].decode()
            tokens = parse_ack_subject(reply)
            self._deliveries[tokens.stream_seq] = tokens.consumer_seq
        if messages:
            self._prefix = _prefix(messages[-1][3].decode())

    def _is_end(self, control: Control, frame: Frame) -> bool:
        """Whether a status ends the request in the ordinary way."""
        status = frame[4][9:].split(b"\r\n", 1)[0]
        code = status[:3]
        if code == b"100":
            return False
        if code in _EXPIRED:
            return True
        said = status.decode(errors="replace")
        if code == b"400":
            raise ConfigurationError(
                f"jetstream source: the server refuses to pull from consumer {self._overflow.consumer!r} of "
                f"stream {self._stream!r}: {said}"
            )
        if code == b"503" or b"Deleted" in status:
            if control.consumer_info(self._overflow.consumer) is None:
                raise ConfigurationError(
                    f"jetstream source: consumer {self._overflow.consumer!r} of stream {self._stream!r} was "
                    "deleted; make it again, or stop the query"
                )
            raise NoRespondersError(f"consumer {self._overflow.consumer!r} does not answer")
        raise RequestTimeoutError(f"the server answered a pull with {said}")


def _prefix(reply: str) -> str:
    """What the ack subjects of a consumer begin with. There are two forms; newer ones may be longer."""
    tokens = reply.split(".")
    front = 4 if len(tokens) < 11 else 6
    return ".".join(tokens[:front])
