"""Spans of OpenTelemetry: a message is published, comes to a consumer, is processed and settled.

With the option ``tracing`` and ``headrace[tracing]`` installed there is one for each awaited publish and
request (acknowledgements, calls of the API and writes to buckets have one only within a trace), and one for
each message that a callback handles; ``tracing.processing`` is for those that you handle in a loop. The
attributes are those of OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from .._version import __version__
from ..handling.callbacks import gives_coroutines
from . import tracing

if TYPE_CHECKING:
    from ..api.messages import PubAck

__all__ = ["Spans"]

_LONG: Final = 32

_log = logging.getLogger("headrace.client")


class Spans:
    """Makes the spans of a connection.

    What goes wrong in making one (in a processor or exporter, too) is logged once, and hurts nobody.

    Args:
        otel: the module ``opentelemetry.trace``.
    """

    __slots__ = ("_has_failed", "_otel", "_tracer")

    def __init__(self, otel: Any) -> None:
        self._otel = otel
        self._has_failed = False
        self._tracer = otel.get_tracer("headrace", __version__)

    @classmethod
    def if_installed(cls) -> Spans | None:
        """None without OpenTelemetry."""
        otel = tracing.opentelemetry()
        return None if otel is None else cls(otel)

    @contextlib.contextmanager
    def publishing(self, subject: str, size: int) -> Iterator[Callable[[PubAck], None]]:
        """A message is sent to a stream, until it has it; call what is given with the acknowledgement."""
        if self._is_upkeep(subject):
            yield lambda ack: None
            return
        attributes = _attributes("send", "publish", subject, size)
        with self._span("publish", subject, self._otel.SpanKind.PRODUCER, attributes) as span:

            def stored(ack: PubAck) -> None:
                with self._unharmed():
                    span.set_attribute("messaging.nats.stream", ack.stream)
                    span.set_attribute("messaging.nats.stream_sequence", ack.seq)
                    span.set_attribute("messaging.nats.duplicate", ack.duplicate)

            yield stored

    @contextlib.contextmanager
    def requesting(self, subject: str, size: int) -> Iterator[None]:
        """A request is sent, until its answer is there."""
        if self._is_upkeep(subject):
            yield
            return
        attributes = _attributes("send", "request", subject, size)
        with self._span("request", subject, self._otel.SpanKind.CLIENT, attributes):
            yield

    def _is_upkeep(self, subject: str) -> bool:
        """Whether it is an acknowledgement, a call of the JetStream API or a write to a bucket, outside of
        any trace: each renewal of a lease, and each look at a lock, would be a trace of one span."""
        if not subject.startswith("$"):
            return False
        is_inside = False
        with self._unharmed():
            is_inside = self._otel.get_current_span().get_span_context().is_valid
        return not is_inside

    @contextlib.contextmanager
    def processing(self, message: Any) -> Iterator[None]:
        """A message is processed, as a part of its sender's trace."""
        subject, kind, attributes = self._about(message)
        sender = None
        with self._unharmed():
            sender = tracing.context_of(message)
        with (
            tracing.use(sender),
            self._span("process", subject, kind, attributes) as span,
        ):
            try:
                yield
            finally:
                self._settled(span, message)

    def one_by_one(self, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The messages, each processed from when it is handed out until the next one is asked for."""
        return _OneByOne(self, messages)

    def _about(self, message: Any) -> tuple[str, Any, dict[str, Any]]:
        """Subject, kind and attributes of the span of a message that is processed."""
        subject = message.subject
        attributes = _attributes("process", "process", subject, len(message.payload))
        delivered = hasattr(message, "is_answered")
        if delivered:
            with self._unharmed():
                about = message.metadata
                attributes["messaging.nats.stream"] = about.stream
                attributes["messaging.consumer.group.name"] = about.consumer
                attributes["messaging.nats.stream_sequence"] = about.stream_seq
                attributes["messaging.nats.delivered"] = about.delivered
        asks = not delivered and bool(message.reply)
        kind = self._otel.SpanKind.SERVER if asks else self._otel.SpanKind.CONSUMER
        return subject, kind, attributes

    def _settled(self, span: Any, message: Any) -> None:
        if getattr(message, "is_answered", False):
            answer = message._answered
            with self._unharmed():
                span.add_event("ack" if answer is True else answer)

    def traced(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """``callback``, with a span for each message that it is called with."""
        if gives_coroutines(callback):

            async def run(message: Any) -> Any:
                with self.processing(message):
                    return await callback(message)

            return run

        def call(message: Any) -> Any:
            with self.processing(message):
                return callback(message)

        return call

    @contextlib.contextmanager
    def _span(
        self, verb: str, subject: str, kind: Any, attributes: dict[str, Any]
    ) -> Iterator[Any]:
        name = f"{verb} {_template(subject)}"
        span, entered = self._otel.INVALID_SPAN, contextlib.ExitStack()
        with self._unharmed():
            span = entered.enter_context(
                self._tracer.start_as_current_span(name, kind=kind, attributes=attributes)
            )
        raised: BaseException | None = None
        try:
            yield span
        except BaseException as error:
            raised = error
            raise
        finally:
            with self._unharmed(raised):
                if raised is None:
                    entered.close()
                else:
                    entered.__exit__(type(raised), raised, raised.__traceback__)

    @contextlib.contextmanager
    def _unharmed(self, known: BaseException | None = None) -> Iterator[None]:
        """Let nothing of tracing out; ``known`` is what is raised anyway."""
        try:
            yield
        except Exception as error:
            if error is not known and not self._has_failed:
                self._has_failed = True
                _log.warning("a span could not be made, or not ended: %r", error, exc_info=error)


class _OneByOne:
    """An iteration with a span for each message, which is the current one while its turn lasts.

    What the body of the loop raises is not known here. Whoever leaves the loop is where it was before it.
    """

    def __init__(self, spans: Spans, messages: AsyncIterator[Any]) -> None:
        self._spans = spans
        self._messages = messages
        self._span: Any = None
        self._message: Any = None
        self._before: Any = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        self._end()
        message = await anext(self._messages)
        with self._spans._unharmed():
            self._begin(message)
        return message

    def __del__(self) -> None:
        self._end()

    def _begin(self, message: Any) -> None:
        subject, kind, attributes = self._spans._about(message)
        with tracing.use(tracing.context_of(message)):
            self._span = self._spans._tracer.start_span(
                f"process {_template(subject)}", kind=kind, attributes=attributes
            )
        self._message = message
        self._before = tracing.make_current(self._span)

    def _end(self) -> None:
        if self._span is None:
            return
        span, self._span = self._span, None
        self._spans._settled(span, self._message)
        with self._spans._unharmed():
            span.end()
            tracing.make_current_again(span, self._before)


def _attributes(kind: str, name: str, subject: str, size: int) -> dict[str, Any]:
    return {
        "messaging.system": "nats",
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
        "messaging.destination.name": subject,
        "messaging.message.body.size": size,
    }


def _template(subject: str) -> str:
    """The subject without what differs from message to message, so that there are few names of spans."""
    return ".".join(
        "*" if len(token) > _LONG or any(map(str.isdigit, token)) else token
        for token in subject.split(".")
    )
