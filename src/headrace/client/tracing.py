"""W3C trace context in message headers: ``traceparent`` and ``tracestate``.

With the option ``tracing`` each message published while a trace is active carries its context; a receiver
goes on with it::

    with tracing.use(tracing.context_of(message)):
        ...                      # what is published here belongs to the sender's trace

With OpenTelemetry installed (``headrace[tracing]``) the active trace is that of its current span, and
``use`` makes the sender's span the parent of those started inside. Without it there is a context of our own.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from ..wire.headers import add_header, header_value

try:
    from opentelemetry import context as _otel_context
    from opentelemetry import trace as _otel
except ImportError:  # then there are our own contexts only
    _otel: Any = None  # type: ignore[no-redef]

__all__ = ["TraceContext", "context_of", "current", "parse", "processing", "start", "use"]

_PARENT: Final = b"traceparent"
_STATE: Final = b"tracestate"
_SAMPLED: Final = 1
_STATE_CHARS_MAX: Final = 512  # what a vendor has to pass on; a longer one is left out
_TRACEPARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII
)
_STATE_TEXT: Final = re.compile(r"[\x20-\x7e\t]*", re.ASCII)


class Received(Protocol):
    """A message that came with headers."""

    @property
    def raw_headers(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where in which trace we are.

    Attributes:
        trace_id: 32 hexadecimal digits, the same for everything in one trace.
        span_id: 16 hexadecimal digits: the operation that is going on, the parent of what it causes.
        flags: bit 0: somebody records this trace.
        state: what the vendors on the way have to say, as it came.
    """

    trace_id: str
    span_id: str
    flags: int = _SAMPLED
    state: str = ""

    @property
    def sampled(self) -> bool:
        """Whether somebody records this trace."""
        return bool(self.flags & _SAMPLED)

    @property
    def traceparent(self) -> str:
        """The value of the header."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & 0xFF:02x}"

    def child(self) -> TraceContext:
        """A new operation in the same trace."""
        return replace(self, span_id=secrets.token_hex(8))


def opentelemetry() -> Any | None:
    """The module ``opentelemetry.trace``, if it is installed."""
    return _otel


_current: ContextVar[TraceContext | None] = ContextVar("headrace_trace", default=None)


def start() -> TraceContext:
    """A new trace, of our own."""
    return TraceContext(secrets.token_hex(16), secrets.token_hex(8))


def parse(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Read the two headers; None when the first is not valid, as the specification has it."""
    found = _TRACEPARENT.fullmatch(traceparent.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if (
        version == "ff"
        or (version == "00" and more)
        or not (int(trace_id, 16) and int(span_id, 16))
    ):
        return None
    if len(tracestate) > _STATE_CHARS_MAX or not _STATE_TEXT.fullmatch(tracestate):
        tracestate = ""
    return TraceContext(trace_id, span_id, int(flags, 16), tracestate.strip())


def context_of(message: Received) -> TraceContext | None:
    """The context a message came with, or None."""
    block = message.raw_headers
    parent = header_value(block, _PARENT) or header_value(block, b"Traceparent")
    if not parent:
        return None
    state = header_value(block, _STATE) or b""
    return parse(parent.decode(errors="replace"), state.decode(errors="replace"))


def current() -> TraceContext | None:
    """The active context: OpenTelemetry's current span, else what ``use`` set; None without a trace."""
    if _otel is not None:
        span = _otel.get_current_span().get_span_context()
        if span.is_valid:
            return TraceContext(
                f"{span.trace_id:032x}",
                f"{span.span_id:016x}",
                int(span.trace_flags),
                span.trace_state.to_header(),
            )
    return _current.get()


@contextlib.contextmanager
def use(context: TraceContext | None) -> Iterator[None]:
    """Make a context the active one inside the block; with None, nothing changes."""
    if context is None:
        yield
        return
    token = _current.set(context)
    attached = None if _otel is None else _otel_context.attach(_remote(context))
    try:
        yield
    finally:
        if attached is not None:
            _otel_context.detach(attached)
        _current.reset(token)


@contextlib.contextmanager
def processing(message: Received) -> Iterator[None]:
    """Process a message inside the block as a part of its sender's trace.

    With OpenTelemetry installed that is a span ``process …``, a child of the sender's, with the stream, the
    consumer, the sequence, how the message was settled inside, and the error that left the block.
    """
    from .spans import Spans

    spans = Spans.if_installed()
    if spans is None:
        with use(context_of(message)):
            yield
    else:
        with spans.processing(message):
            yield


def _remote(context: TraceContext) -> Any:
    """OpenTelemetry's context with the sender's span as the current one."""
    span = _otel.SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=_otel.TraceFlags(context.flags),
        trace_state=_otel.TraceState.from_header([context.state] if context.state else []),
    )
    return _otel.set_span_in_context(_otel.NonRecordingSpan(span))


def make_current(span: Any) -> Any:
    """Make a span of OpenTelemetry the current one, and return what was current before. Without a token,
    which only the context that it is of could give back."""
    before = _otel_context.get_current()
    _otel_context.attach(_otel.set_span_in_context(span, before))
    return before


def make_current_again(span: Any, before: Any) -> None:
    """Undo ``make_current(span)``, where ``span`` is still the current one."""
    if _otel.get_current_span() is span:
        _otel_context.attach(before)


def with_trace(block: bytes) -> bytes:
    """A header block with the active context, unless it has one already or there is none."""
    context = current()
    if context is None or header_value(block, _PARENT) is not None:
        return block
    block = add_header(block, _PARENT, context.traceparent.encode())
    return add_header(block, _STATE, context.state.encode()) if context.state else block
