"""Answers to flow control, by the consumer they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....ports import Origin

if TYPE_CHECKING:
    from ...engine.registry import Registry

__all__ = ["FLOW", "FlowDispatch"]

FLOW: Final = b"$JS.FC.>"
_TOKENS: Final = 5  # $JS, FC, stream, consumer, request


class FlowDispatch:
    """The sink on ``$JS.FC.>``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def sink(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        """Take one answer; False when its consumer does not exist, or wants none."""
        tokens = subject.split(b".")
        if len(tokens) != _TOKENS:
            return False
        stream = self._registry.streams.get(tokens[2].decode(errors="replace"))
        name = tokens[3].decode(errors="replace")
        consumer = stream.consumers.get(name) if stream is not None else None
        if consumer is None or consumer.push is None or consumer.push.window is None:
            return False
        consumer.push.answered(subject, headers)
        return None
