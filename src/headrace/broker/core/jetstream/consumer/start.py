"""Where a new consumer starts, and which messages it may see."""

from __future__ import annotations

from .....api.consumers import ConsumerConfig
from .....api.times import parse_time
from .....subjects import SubjectFilter
from ...ports import StreamStore

__all__ = ["choose_messages", "safe_sequence", "start_sequence"]


def start_sequence(
    config: ConsumerConfig,
    store: StreamStore,
    filter: SubjectFilter | None,
) -> int:
    """The first stream sequence a new consumer looks at."""
    first, after_last = max(store.first_seq, 1), store.last_seq + 1
    if config.deliver_policy == "all":
        return first
    if config.deliver_policy == "last":
        last = store.last_matching(filter) if filter is not None else 0
        return max(last or store.last_seq, first if store.messages else 1)
    if config.deliver_policy == "by_start_sequence":
        return max(config.opt_start_seq, first)
    if config.deliver_policy == "by_start_time":
        return max(store.sequence_at(parse_time(config.opt_start_time or "")), 1)
    return after_last


def safe_sequence(
    config: ConsumerConfig, store: StreamStore, filter: SubjectFilter | None, created_ns: int
) -> int:
    """Where a consumer goes on of which nothing is known but when it was made: nothing is skipped."""
    if config.deliver_policy == "new":
        return max(store.sequence_at(created_ns), 1)
    if config.deliver_policy in ("last", "last_per_subject"):
        return max(store.first_seq, 1)
    return start_sequence(config, store, filter)


def choose_messages(store: StreamStore, filter: SubjectFilter | None) -> list[int]:
    """The last message of each subject, in the order of the stream."""
    return store.lasts(filter)
