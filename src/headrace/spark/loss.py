"""Which removals a reader has to call loss, and which are compaction. Pure.

A stream that keeps so many messages per subject, as every key-value bucket does, or that takes roll-ups,
removes what newer messages replace: whoever reads it wants the newer ones. Its limits of age and size
remove what nothing has replaced; that is loss. The state of a stream does not tell one from the other, so
age and size are excluded where the facts exclude them, and otherwise a removal is taken for loss.
"""

from __future__ import annotations

from typing import Final

from ..api.streams import StreamConfig
from ..api.times import parse_time
from .offsets import StreamHead

NS: Final = 1_000_000_000
# Clocks of a cluster's servers differ a little, and a state is read before it is stamped.
CLOCK_SLACK_NS: Final = NS


def compacts(config: StreamConfig) -> bool:
    """Whether newer messages replace older ones."""
    refuses = config.discard == "new" and config.discard_new_per_subject
    return config.allow_rollup_hdrs or (config.max_msgs_per_subject > 0 and not refuses)


def can_lose(config: StreamConfig) -> bool:
    """Whether messages can leave the stream's head by anything that is loss to a reader."""
    if config.retention != "limits":
        return False  # consumers decide what is kept, and this source reads what is left
    return not compacts(config) or config.max_age > 0 or _trims(config)


def may_be_loss(config: StreamConfig, head: StreamHead, since_ns: int) -> bool:
    """Whether messages missing before the head may be lost, rather than replaced.

    ``since_ns``: every one of them was stored at or after this time (0: not known).
    """
    if not can_lose(config):
        return False
    return not compacts(config) or _may_have_aged(config, head, since_ns) or _is_full(config, head)


def stored_after(head: StreamHead, seq: int) -> int:
    """A time (ns) at or after which every message after ``seq`` was stored; 0 if the head does not tell."""
    if seq >= head.last_seq:
        return head.now_ns
    return head.first_ns if seq + 1 >= head.first_seq else 0


def _may_have_aged(config: StreamConfig, head: StreamHead, since_ns: int) -> bool:
    if config.max_age <= 0:
        return False
    if not head.now_ns:
        return True  # a server that does not tell its time
    oldest_ns = max(since_ns, parse_time(head.epoch))
    return head.now_ns + CLOCK_SLACK_NS - oldest_ns >= config.max_age * NS


def _is_full(config: StreamConfig, head: StreamHead) -> bool:
    """Whether the limits of size may be at work: replacing a message leaves the stream as full as it was.

    A replaced payload may have been larger, so of ``max_bytes`` nine tenths count as full.
    """
    if not _trims(config):
        return False
    return 0 < config.max_msgs <= head.messages or 0 < config.max_bytes * 9 <= head.bytes * 10


def _trims(config: StreamConfig) -> bool:
    return config.discard == "old" and (config.max_msgs > 0 or config.max_bytes > 0)
