"""The reply subject of a message of a fast batch: what the publisher says about it.

``<prefix>.<batch>.<flow>.<gap>.<sequence>.<operation>.$FI``: the batch's name, every how many messages the
publisher wants an acknowledgement at most, ``ok`` or ``fail`` for messages that were lost on the way, the
message's place in the batch from 1, and what to do with it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FAST: Final = b".$FI"
"""What the reply of every message of a fast batch ends with, and no other."""

START: Final = 0
APPEND: Final = 1
COMMIT: Final = 2
"""Store the message, and end the batch."""
END: Final = 3
"""End the batch; the message is none of it."""
PING: Final = 4
"""Say once more how far the batch has come; the message is none of it."""

_SEQUENCE_MAX: Final = 2**64 - 2
_FLOW_DEFAULT: Final = 10
_FLOW_MAX: Final = 2**16 - 1
_DIGITS_MAX: Final = 20
_TOKENS: Final = 7
_GAPS: Final = (b"fail", b"ok")


class FastReply(NamedTuple):
    """``flow`` is at least 1, what is no number counting as 10."""

    batch_id: bytes
    flow: int
    gap_ok: bool
    sequence: int
    operation: int


def read_fast_reply(reply: bytes) -> FastReply | None:
    """What a reply that ends with ``FAST`` says, or None for one that is not of the form above."""
    tokens = reply.rsplit(b".", _TOKENS - 1)
    if len(tokens) < _TOKENS:
        return None
    _, batch_id, flow_token, gap, sequence_token, operation_token, _ = tokens
    operation, sequence = _number(operation_token), _number(sequence_token)
    if not START <= operation <= PING or not 0 < sequence <= _SEQUENCE_MAX or gap not in _GAPS:
        return None
    if (operation == START) != (sequence == 1) and operation <= APPEND:
        return None
    if operation == END and sequence == 1:
        return None
    flow = _number(flow_token)
    flow = min(flow, _FLOW_MAX) if flow > 0 else _FLOW_DEFAULT
    return FastReply(batch_id, flow, gap == b"ok", sequence, operation)


def _number(token: bytes) -> int:
    """A decimal number without sign, or -1."""
    return int(token) if token.isdigit() and len(token) <= _DIGITS_MAX else -1
