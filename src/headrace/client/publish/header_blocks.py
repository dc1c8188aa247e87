"""The header blocks of one publisher's messages: what the caller wants, an id, the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...api import names
from ...wire.headers import EMPTY_BLOCK, add_header, header_value
from ..message import HeadersLike, header_block
from .headers import header_text

__all__ = ["Blocks"]

_MSG_ID: Final = names.MSG_ID.encode()
_BEGIN: Final = EMPTY_BLOCK[:-2] + _MSG_ID + b": "
_DIGITS_MAX: Final = 20  # of a message's number


class Blocks:
    """Makes them, by the number of the message.

    Attributes:
        always: whether a message has one even if its caller wants none.
        start, end: what surrounds the number of a message in such a block, if it is always the same; else
            empty.
        extra: how long these are, and ``extra_max`` how long the block is at most.
    """

    __slots__ = (
        "_deduplicate",
        "_id_start",
        "_trace",
        "always",
        "end",
        "extra",
        "extra_max",
        "start",
    )

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
