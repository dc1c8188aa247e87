"""How many messages a change of a stream's settings removes at once, asked without changing anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ...api.streams import StreamConfig, StreamInfo
from .stored.stored_message import if_found
from .stream import Stream

_DELETED_MAX: Final = (
    100_000  # so many sequences of deleted messages are asked for, to count exactly
)


@dataclass(frozen=True)
class Loss:
    """What a change removes.

    Attributes:
        messages: how many messages, as far as that can be told before.
        of: how many there are.
        is_exact: whether it is that many, and not about that many.
        unneeded: whether messages go as well that no consumer needs; they are not counted.
        refuses: whether the stream is fuller than it may be then, keeps all, and refuses new messages.
    """

    messages: int
    of: int
    is_exact: bool = True
    unneeded: bool = False
    refuses: bool = False

    @property
    def text(self) -> str:
        """Words to go behind "change stream A so"; nothing if nothing is lost."""
        about = "" if self.is_exact else "about "
        counted = f"{about}{self.messages:,} of {self.of:,} messages" if self.messages else ""
        unneeded = "what no consumer needs" if self.unneeded else ""
        what = ", and ".join(filter(None, (counted, unneeded)))
        parts = [f"which removes {what}"] if what else []
        if self.refuses:
            parts.append("which refuses new messages until there is room")
        return "".join(f", {part}" for part in parts)

    @property
    def document(self) -> Mapping[str, Any]:
        """The removal as a document, for programs."""
        return {
            "removes": {
                "messages": self.messages,
                "of": self.of,
                "exact": self.is_exact and not self.unneeded,
            },
            "refuses_new": self.refuses,
        }


async def loss_of(stream: Stream, info: StreamInfo, after: StreamConfig) -> Loss:
    """What changing a stream from what ``info`` says to ``after`` removes."""
    before, state = info.config, info.state
    trimmed, is_exact, is_over = _trimmed(info, after)
    if after.discard == "new" or after.sealed:
        trimmed, is_exact = 0, True
    if after.max_age > 0 and not after.sealed and not 0 < before.max_age <= after.max_age:
        aged, all_counted = await _aged(stream, info, after.max_age)
        if aged > trimmed:
            trimmed, is_exact = aged, all_counted
    thinned = 0
    least = after.max_msgs_per_subject
    if least > 0 and not 0 < before.max_msgs_per_subject <= least:
        counts = (await stream.info(subjects=">")).state.subjects
        thinned = sum(max(0, count - least) for count in counts.values())
    return Loss(
        max(trimmed, thinned),
        state.messages,
        is_exact and not (trimmed and thinned),
        unneeded=before.retention == "limits" and after.retention == "interest",
        refuses=is_over and after.discard == "new",
    )


def _trimmed(info: StreamInfo, after: StreamConfig) -> tuple[int, bool, bool]:
    """How many of the oldest are too many, whether that is exact, and whether any limit is exceeded."""
    state, number = info.state, 0
    if after.max_msgs > 0:
        number = max(0, state.messages - after.max_msgs)
    by_number = number
    excess = state.bytes - after.max_bytes if after.max_bytes > 0 else 0
    if excess > 0:  # the oldest may be smaller or larger than others
        number = max(number, -(-excess * state.messages // max(1, state.bytes)))
    return number, excess <= 0 or number == by_number, number > 0


async def _aged(stream: Stream, info: StreamInfo, max_age: float) -> tuple[int, bool]:
    """How many messages are older than that, and whether none of these was deleted already, or all known."""
    state = info.state
    if not state.messages:
        return 0, True
    since = datetime.fromtimestamp(time.time() - max_age, UTC)
    young = await if_found(stream.get_next_message(">", start_time=since))
    if young is None:
        return state.messages, True
    gone = young.sequence - state.first_seq
    if gone <= 0:
        return 0, True
    if not state.num_deleted:
        return gone, True
    if state.num_deleted > _DELETED_MAX:
        return min(gone, state.messages), False
    deleted = (await stream.info(deleted=True)).state.deleted
    return gone - sum(each < young.sequence for each in deleted), True
