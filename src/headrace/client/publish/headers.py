"""The header blocks of what is published: what a publish asks of its stream, an id, the trace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypedDict

from ...api import names
from ...errors import ConfigurationError, ProtocolError
from ...wire.headers import EMPTY_BLOCK, Headers, add_header, check_value, header_value
from ..message import HeadersLike, header_block

_MSG_ID: Final = names.MSG_ID.encode()
_BEGIN: Final = EMPTY_BLOCK[:-2] + _MSG_ID + b": "
_DIGITS_MAX: Final = 20  # of a message's number


class PublishOptions(TypedDict, total=False):
    """What a publish may ask of its stream; all may be left out.

    A sequence of 0 means "none yet". A publish whose expectation does not hold is refused.
    """

    msg_id: str
    """The stream drops another message with this id within its duplicate window."""

    expected_stream: str
    expected_last_sequence: int | None
    expected_last_subject_sequence: int | None
    expected_last_subject_sequence_subject: str
    """Compare that of another subject, which may have wildcards, than the message's own."""

    expected_last_msg_id: str

    ttl: float | timedelta | str
    """Seconds, at least 1, after which the message is removed, or "never"; the stream must allow it."""


def with_options(headers: HeadersLike, options: PublishOptions, *more: tuple[str, str]) -> bytes:
    """The raw header block: ``headers``, what ``options`` ask for, and ``more``."""
    if not more and not options:
        return header_block(headers) if headers else b""
    ttl = options.get("ttl", 0)
    asked = (
        (names.MSG_ID, options.get("msg_id", "")),
        (names.EXPECTED_STREAM, options.get("expected_stream", "")),
        (names.EXPECTED_LAST_SEQ, _text(options.get("expected_last_sequence"))),
        (names.EXPECTED_LAST_SUBJECT_SEQ, _text(options.get("expected_last_subject_sequence"))),
        (
            names.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
            options.get("expected_last_subject_sequence_subject", ""),
        ),
        (names.EXPECTED_LAST_MSG_ID, options.get("expected_last_msg_id", "")),
        (names.TTL, ttl if isinstance(ttl, str) else duration_text(ttl)),
        *more,
    )
    added = [(name, value) for name, value in asked if value]
    return header_block(headers, added) if headers or added else b""


def with_pairs(headers: HeadersLike, *more: tuple[str, str]) -> Headers:
    """``headers`` and those of ``more`` that have a value."""
    if headers:
        header_block(headers)  # refuses what is no header
    pairs: list[tuple[str, str]] = []
    for name, value in headers.items() if headers else ():
        values = (value,) if isinstance(value, str) else value
        pairs.extend((name, one) for one in values)
    return Headers([*pairs, *((name, value) for name, value in more if value)])


def header_text(what: str, value: str) -> bytes:
    """The bytes of a header value. Raises ConfigurationError for what cannot be one."""
    try:
        check_value(f"{what} {value!r:.200}", value)
    except ProtocolError as error:
        raise ConfigurationError(str(error)) from None
    return value.encode(errors="surrogateescape")


def duration_text(duration: float | timedelta) -> str:
    """As the server reads durations; "" for none. Raises ConfigurationError for what is no duration."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not isinstance(seconds, int | float) or seconds < 0:
        raise ConfigurationError(
            f"a duration is {duration!r}; accepted are seconds, or a timedelta"
        )
    return f"{seconds:f}".rstrip("0").rstrip(".") + "s" if seconds else ""


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


class Blocks:
    """Makes the header blocks of one publisher's messages, by the number of the message.

    Attributes:
        always: whether a message has one even if its caller wants none.
        start, end: what surrounds the number of a message in such a block, if it is always the same; else
            empty.
        extra: how long these are, and ``extra_max`` how long the block is at most.
    """

    __slots__ = (
        "_deduplicate", "_id_start", "_trace", "always", "end", "extra", "extra_max", "start",
    )  # fmt: skip

    def __init__(
        self, *, deduplicate: bool, prefix: bytes, trace: Callable[[bytes], bytes] | None
    ) -> None:
        """``prefix`` is unique to the publisher; ``trace`` adds to a block what tells of the trace."""
        self._deduplicate = deduplicate
        self._id_start = prefix + b"."
        self._trace = trace
        self.always = deduplicate or trace is not None
        alike = deduplicate and trace is None
        self.start = _BEGIN + self._id_start if alike else b""
        self.end = b"\r\n\r\n" if alike else b""
        self.extra = len(self.start) + len(self.end)
        self.extra_max = self.extra + _DIGITS_MAX if alike else 0

    def make(self, index: int, headers: HeadersLike, msg_id: str) -> bytes:
        """The block of a message that has one, or ``b""`` if there is no trace to tell of."""
        if not headers and self._trace is None:
            name = header_text("msg_id", msg_id) if msg_id else b"%b%d" % (self._id_start, index)
            return b"%b%b\r\n\r\n" % (_BEGIN, name)
        block = header_block(headers) if headers else b""
        if msg_id:
            block = add_header(block, _MSG_ID, header_text("msg_id", msg_id))
        elif self._deduplicate and header_value(block, _MSG_ID) is None:
            block = add_header(block, _MSG_ID, b"%b%d" % (self._id_start, index))
        return block if self._trace is None else self._trace(block)
