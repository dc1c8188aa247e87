"""How long a line of the protocol may be: a server closes the connection of who sends a longer one.

INFO does not say it, so this is nats-server's default (``max_control_line``), and ours. What is longer is
refused before it is sent, or it would cost the connection all that is under way.
"""

from __future__ import annotations

from typing import Final

from ...errors import LimitExceededError
from ...limits import CONTROL_LINE_BYTES_MAX

_NUMBERS_BYTES: Final = 24  # two sizes or a number of a subscription, and spaces
WORDS_BYTES_MAX: Final = CONTROL_LINE_BYTES_MAX - _NUMBERS_BYTES
"""What subject and reply subject, or subject and queue group, may have together."""

INBOX_PREFIX_BYTES_MAX: Final = 512
_INBOX_BYTES: Final = (
    64  # what follows the prefix in the reply of a request or a publisher, at most
)


def reply_bytes(inbox_prefix: str) -> int:
    """How long the reply subjects made from inboxes are, at most."""
    return len(inbox_prefix.encode()) + _INBOX_BYTES


def check_line(subject: bytes, others_bytes: int = 0) -> None:
    """Raises LimitExceededError: with what else its line has, a subject is too long to be sent."""
    if len(subject) + others_bytes > WORDS_BYTES_MAX:
        shown = subject[:32].decode(errors="ignore")
        beside = (
            f" and {others_bytes} bytes of reply subject or queue group" if others_bytes else ""
        )
        raise LimitExceededError(
            f"a subject of {len(subject)} bytes{beside} ({shown}…) is too long for a line: a server takes "
            f"{CONTROL_LINE_BYTES_MAX} bytes with all that is in it (its max_control_line), and closes the "
            "connection of who sends more"
        )
