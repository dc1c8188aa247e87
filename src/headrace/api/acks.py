"""Ack subjects: the subject on which a delivered message is acknowledged, and the meaning of its
tokens.

v1 ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<timestamp ns>.<pending>``; v2
puts ``<domain or _>.<account hash>`` after ``$JS.ACK`` and may append tokens.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ACK: Final = b"+ACK"
NAK: Final = b"-NAK"
IN_PROGRESS: Final = b"+WPI"
NEXT: Final = b"+NXT"
TERM: Final = b"+TERM"

_V1_TOKENS: Final = 9
_V2_TOKENS_MIN: Final = 11


class AckTokens(NamedTuple):
    """The tokens of an ack subject. ``delivered`` counts deliveries of this message, from 1."""

    stream: str
    consumer: str
    delivered: int
    stream_seq: int
    consumer_seq: int
    timestamp_ns: int
    pending: int
    domain: str = ""


def ack_prefix(stream: str, consumer: str) -> bytes:
    """The part before ``<delivered>``, with the dot; computed once per consumer."""
    return f"$JS.ACK.{stream}.{consumer}.".encode()


def parse_ack_subject(subject: str) -> AckTokens:
    """Parse an ack subject of either version.

    Raises:
        ValueError: it is not an ack subject.
    """
    tokens = subject.split(".")
    if tokens[:2] != ["$JS", "ACK"]:
        raise ValueError(f"not an ack subject: {subject!r} does not start with $JS.ACK")
    domain = ""
    if len(tokens) == _V1_TOKENS:
        rest = tokens[2:]
    elif len(tokens) >= _V2_TOKENS_MIN:
        domain = "" if tokens[2] == "_" else tokens[2]
        rest = tokens[4:]
    else:
        raise ValueError(
            f"not an ack subject: {subject!r} has {len(tokens)} tokens, 9 or 11 expected"
        )
    try:
        delivered, stream_seq, consumer_seq, timestamp_ns, pending = map(int, rest[2:7])
    except ValueError as error:
        raise ValueError(
            f"not an ack subject: {subject!r} has a token that is no number"
        ) from error
    return AckTokens(
        rest[0], rest[1], delivered, stream_seq, consumer_seq, timestamp_ns, pending, domain
    )
