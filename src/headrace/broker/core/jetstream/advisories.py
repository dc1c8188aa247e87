"""What the server tells about itself on ``$JS.EVENT.ADVISORY.…``, when somebody listens."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from ....api.base import to_wire
from ....api.consumers import ConsumerConfig
from ....api.streams import StreamStateInfo
from ....api.times import ZERO_TIME, format_time
from ....clock import Clock
from ..ports import Bus
from .config.options import JetStreamOptions

API_AUDIT: Final = b"$JS.EVENT.ADVISORY.API"

_SUBJECT: Final = "$JS.EVENT.ADVISORY."
_TYPE: Final = "io.nats.jetstream.advisory.v1."
_OWN_TYPE: Final = "io.headrace.jetstream.advisory.v1."
"""Of what other servers do not tell."""

_METRIC_SUBJECT: Final = "$JS.EVENT.METRIC.CONSUMER.ACK."
_METRIC_TYPE: Final = "io.nats.jetstream.metric.v1.consumer_ack"
_ID_CHARS: Final = 22
_STREAM_EVENTS: Final = {"create": "CREATED", "delete": "DELETED", "modify": "UPDATED"}
_CONSUMER_EVENTS: Final = {"create": "CREATED", "delete": "DELETED"}


class _Stream(Protocol):
    name: str


class _Consumer(Protocol):
    """A consumer, as far as advisories name it."""

    name: str
    config: ConsumerConfig

    @property
    def stream(self) -> _Stream: ...


class _Context(Protocol):
    bus: Bus
    clock: Clock
    options: JetStreamOptions

    def new_name(self, length: int) -> str: ...


def _place(stream_seq: int, consumer_seq: int, deliveries: int) -> dict[str, int]:
    return {"consumer_seq": consumer_seq, "stream_seq": stream_seq, "deliveries": deliveries}


class Advisories:
    """Publishes advisories; building one costs nothing while nobody listens."""

    def __init__(self, context: _Context) -> None:
        self._context = context

    def stream(self, name: str, action: str) -> None:
        """A stream was made (``create``), changed (``modify``) or removed (``delete``)."""
        event = f"STREAM.{_STREAM_EVENTS[action]}.{name}"
        self._publish(event, "stream_action", stream=name, action=action)

    def snapshot_created(
        self, stream: str, state: StreamStateInfo, client: dict[str, Any] | None
    ) -> None:
        """A backup of a stream begins."""
        self._about_backup(stream, "SNAPSHOT_CREATE", client, state=to_wire(state))

    def snapshot_completed(
        self, stream: str, start_ns: int, client: dict[str, Any] | None, error: str
    ) -> None:
        """A backup has ended, perhaps for an ``error``."""
        why = {"error": error} if error else {}
        self._about_backup(stream, "SNAPSHOT_COMPLETE", client, **self._span(start_ns), **why)

    def restore_created(self, stream: str, client: dict[str, Any] | None) -> None:
        """A restore of a stream begins."""
        self._about_backup(stream, "RESTORE_CREATE", client)

    def restore_completed(
        self, stream: str, start_ns: int, client: dict[str, Any] | None, nbytes: int
    ) -> None:
        """A restore has ended, one way or the other, after so many bytes."""
        span = self._span(start_ns)
        self._about_backup(stream, "RESTORE_COMPLETE", client, **span, bytes=nbytes)

    def _span(self, start_ns: int) -> dict[str, str]:
        return {
            "start": format_time(start_ns),
            "end": format_time(self._context.clock.now_ns()),
        }

    def _about_backup(
        self, stream: str, event: str, client: dict[str, Any] | None, **fields: Any
    ) -> None:
        domain = self._context.options.domain
        more = {"domain": domain} if domain else {}
        place = {"stream": stream, **fields, "client": client, **more}
        self._publish(f"STREAM.{event}.{stream}", event.lower(), **place)

    def batch_abandoned(self, stream: str, batch: str, reason: str) -> None:
        """An atomic batch came to nothing: ``timeout``, ``large``, ``incomplete``, ``unsupported``."""
        event = f"STREAM.BATCH_ABANDONED.{stream}"
        self._publish(event, "stream_batch_abandoned", stream=stream, batch=batch, reason=reason)

    def copy_stopped(self, stream: str, origin: str, reason: str) -> None:
        """A mirror takes nothing more of its origin, which is another stream than it was."""
        fields = {"stream": stream, "origin": origin, "reason": reason}
        self._publish(f"STREAM.COPY_STOPPED.{stream}", _OWN_TYPE + "stream_copy_stopped", **fields)

    def consumer(self, consumer: _Consumer, action: str) -> None:
        """A consumer was made (``create``) or removed (``delete``)."""
        self._about(consumer, _CONSUMER_EVENTS[action], "consumer_action", action=action)

    def refused(
        self, consumer: _Consumer, stream_seq: int, consumer_seq: int, deliveries: int
    ) -> None:
        """A delivery was refused (``-NAK``)."""
        place = _place(stream_seq, consumer_seq, deliveries)
        self._about(consumer, "MSG_NAKED", "nak", **place)

    def terminated(
        self, consumer: _Consumer, stream_seq: int, consumer_seq: int, deliveries: int, reason: str
    ) -> None:
        """A message will not be delivered again (``+TERM``, or it was deleted)."""
        place = _place(stream_seq, consumer_seq, deliveries)
        why = {"reason": reason} if reason else {}
        self._about(consumer, "MSG_TERMINATED", "terminated", **place, **why)

    def acked(
        self, consumer: _Consumer, stream_seq: int, consumer_seq: int, deliveries: int, took_ns: int
    ) -> None:
        """A sampled acknowledgement, ``took_ns`` after the delivery."""
        bus, names = self._context.bus, (consumer.stream.name, consumer.name)
        subject = (_METRIC_SUBJECT + ".".join(names)).encode()
        if bus.has_interest(subject):
            fields = {
                "stream": names[0],
                "consumer": names[1],
                "consumer_seq": consumer_seq,
                "stream_seq": stream_seq,
                "ack_time": took_ns,
                "deliveries": deliveries,
            }
            bus.publish(subject, b"", b"", self._document(_METRIC_TYPE, fields))

    def exhausted(self, consumer: _Consumer, stream_seq: int, deliveries: int) -> None:
        """A message was delivered as often as allowed."""
        self._about(
            consumer, "MAX_DELIVERIES", "max_deliver", stream_seq=stream_seq, deliveries=deliveries
        )

    def paused(self, consumer: _Consumer, until_ns: int) -> None:
        """A consumer paused until a time, or went on: by order (0) or because that time has come."""
        until = format_time(until_ns) if until_ns else ZERO_TIME
        pauses = until_ns > self._context.clock.now_ns()
        self._about(consumer, "PAUSE", "consumer_pause", paused=pauses, pause_until=until)

    def pinned(self, consumer: _Consumer, pin_id: str, client: dict[str, Any] | None) -> None:
        """A client was pinned: which, where that is known."""
        self._about_group(consumer, "PINNED", "pinned", client, pinned_id=pin_id)

    def unpinned(self, consumer: _Consumer, reason: str, client: dict[str, Any] | None) -> None:
        """A pin was lost: ``admin`` or ``timeout``, and by which client, where that is known."""
        self._about_group(consumer, "UNPINNED", "unpinned", client, reason=reason)

    @property
    def audits(self) -> bool:
        """Whether anybody listens to the audit of API calls."""
        return self._context.bus.has_interest(API_AUDIT)

    def api_call(
        self, subject: str, request: bytes, response: bytes, client: dict[str, Any] | None
    ) -> bytes:
        """The audit of one API call, to be published on ``API_AUDIT`` with its answer."""
        fields = {
            "server": self._context.options.server_name,
            **({"client": client} if client else {}),
            "subject": subject,
            **({"request": request.decode(errors="replace")} if request else {}),
            "response": response.decode(errors="replace"),
        }
        return self._document(_TYPE + "api_audit", fields)

    def _about_group(
        self, consumer: _Consumer, event: str, kind: str, client: dict[str, Any] | None, **more: str
    ) -> None:
        fields = {
            "account": self._context.options.account,
            "group": consumer.config.priority_groups[0],
            **more,
            **({"client": client} if client else {}),
        }
        self._about(consumer, event, f"consumer_group_{kind}", **fields)

    def _about(self, consumer: _Consumer, event: str, kind: str, **fields: Any) -> None:
        names = {"stream": consumer.stream.name, "consumer": consumer.name}
        subject = f"CONSUMER.{event}.{names['stream']}.{names['consumer']}"
        self._publish(subject, kind, **names, **fields)

    def _publish(self, event: str, kind: str, **fields: Any) -> None:
        context = self._context
        subject = (_SUBJECT + event).encode()
        if not context.bus.has_interest(subject):
            return
        kind = kind if kind.startswith(_OWN_TYPE) else _TYPE + kind
        context.bus.publish(subject, b"", b"", self._document(kind, fields))

    def _document(self, kind: str, fields: dict[str, Any]) -> bytes:
        context = self._context
        head = {
            "type": kind,
            "id": context.new_name(_ID_CHARS),
            "timestamp": format_time(context.clock.now_ns()),
        }
        return msgspec.json.encode({**head, **fields})
