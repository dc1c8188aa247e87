from __future__ import annotations

from typing import Any

import pytest

from headrace.api.streams import StreamConfig
from headrace.api.times import format_time
from headrace.spark.loss import can_lose, compacts, may_be_loss, stored_after
from headrace.spark.offsets import StreamHead

NS = 1_000_000_000
CREATED = 1_000 * NS


def config(**changes: Any) -> StreamConfig:
    return StreamConfig(name="S", **changes)


def head(now_s: int, *, messages: int = 10, size: int = 1000, first_s: int = 1000) -> StreamHead:
    return StreamHead(
        format_time(CREATED), 91, 100, messages, size, first_ns=first_s * NS, now_ns=now_s * NS
    )


@pytest.mark.parametrize(
    ("the_config", "yes"),
    [
        (config(), False),
        (config(max_msgs_per_subject=1), True),
        (config(max_msgs_per_subject=1, discard="new"), True),
        (config(max_msgs_per_subject=1, discard="new", discard_new_per_subject=True), False),
        (config(allow_rollup_hdrs=True), True),
        (config(max_msgs=5, max_age=5.0), False),
    ],
)
def test_newer_messages_replace_older_ones_by_limits_per_subject_and_roll_ups(
    the_config: StreamConfig, yes: bool
) -> None:
    assert compacts(the_config) is yes


@pytest.mark.parametrize(
    ("the_config", "yes"),
    [
        (config(), True),
        (config(retention="workqueue"), False),
        (config(retention="interest"), False),
        (config(max_msgs_per_subject=1), False),
        (config(max_msgs_per_subject=1, max_age=60.0), True),
        (config(max_msgs_per_subject=1, max_msgs=9), True),
        (config(max_msgs_per_subject=1, max_bytes=9, discard="new"), False),
    ],
)
def test_what_limits_per_subject_remove_is_no_loss_unless_other_limits_stand_beside(
    the_config: StreamConfig, yes: bool
) -> None:
    assert can_lose(the_config) is yes


@pytest.mark.parametrize(
    ("now_s", "since_s", "yes"),
    [
        (1058, 0, False),  # the stream itself is younger than its messages may become
        (1060, 0, True),
        (5000, 0, True),
        (5000, 4942, False),
        (5000, 4940, True),
        (0, 4990, True),  # the server does not tell its time
    ],
)
def test_age_is_excluded_only_while_nothing_unread_can_be_that_old(
    now_s: int, since_s: int, yes: bool
) -> None:
    kept = config(max_msgs_per_subject=1, max_age=60.0)
    assert may_be_loss(kept, head(now_s), since_s * NS) is yes


@pytest.mark.parametrize(
    ("limits", "messages", "size", "yes"),
    [
        ({"max_msgs": 10}, 9, 1000, False),
        ({"max_msgs": 10}, 10, 1000, True),
        ({"max_bytes": 1000}, 9, 899, False),
        ({"max_bytes": 1000}, 9, 900, True),
    ],
)
def test_size_is_excluded_while_the_stream_is_not_full(
    limits: dict[str, int], messages: int, size: int, yes: bool
) -> None:
    kept = config(max_msgs_per_subject=1, **limits)
    assert may_be_loss(kept, head(5000, messages=messages, size=size), 0) is yes


def test_without_compaction_every_removal_from_the_head_is_loss() -> None:
    assert may_be_loss(config(), head(1001), 1001 * NS)
    assert not may_be_loss(config(retention="interest"), head(1001), 0)


def test_the_head_tells_since_when_the_messages_after_a_sequence_are_stored() -> None:
    assert stored_after(head(5000, first_s=4000), 100) == 5000 * NS
    assert stored_after(head(5000, first_s=4000), 90) == 4000 * NS
    assert stored_after(head(5000, first_s=4000), 89) == 0
