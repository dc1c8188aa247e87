"""The workers' consumer: whether a surplus can be taken from it, and what is acknowledged there."""

from __future__ import annotations

from typing import Final

from ...api.acks import ACK
from ...api.consumers import ConsumerInfo
from ...errors import ConfigurationError
from ..links.control import Control
from ..options.overflow import OverflowOptions
from .offsets import OverflowOffset

ACKED_AT_ONCE: Final = 500


def the_consumer(control: Control, wanted: OverflowOptions, max_rows: int | None) -> ConsumerInfo:
    """The consumer, checked.

    Raises:
        ConfigurationError: there is none of this name, or it hands out no surplus; the text says what to do.
    """
    info = control.consumer_info(wanted.consumer)
    where = f"consumer {wanted.consumer!r} of stream {control.stream!r}"
    if info is None:
        raise ConfigurationError(
            f"jetstream source: stream {control.stream!r} has no consumer {wanted.consumer!r}; make it with "
            "the priority policy overflow and a priority group, for the workers and the query together"
        )
    config = info.config
    if config.deliver_subject or config.ack_policy != "explicit":
        raise ConfigurationError(
            f"jetstream source: {where} is no pull consumer with explicit acknowledgements, which 'consumer' "
            "needs"
        )
    if config.priority_policy != "overflow":
        raise ConfigurationError(
            f"jetstream source: {where} has the priority policy {config.priority_policy}; "
            "'consumer' needs overflow"
        )
    if wanted.group and wanted.group not in config.priority_groups:
        raise ConfigurationError(
            f"jetstream source: {where} has no priority group {wanted.group!r}; it has: "
            f"{', '.join(config.priority_groups)}"
        )
    if not wanted.group and len(config.priority_groups) != 1:
        raise ConfigurationError(
            f"jetstream source: {where} has several priority groups: {', '.join(config.priority_groups)}; "
            "say which one with 'priorityGroup'"
        )
    if max_rows is not None and 0 < config.max_ack_pending <= max_rows:
        raise ConfigurationError(
            f"jetstream source: {where} lets {config.max_ack_pending} messages be unacknowledged, and a "
            f"batch of {max_rows} would leave none of them for its workers; set maxOffsetsPerTrigger lower, "
            "or its max_ack_pending higher"
        )
    return info


def acknowledge(control: Control, batch: OverflowOffset, info: ConsumerInfo) -> None:
    """Acknowledge a batch's messages, and wait until the server has it. Again does no harm.

    A consumer that was made again never handed out what comes after its own position: servers give no answer
    then, so it is not asked.
    """
    subjects = [
        subject
        for sequence, subject in batch.ack_subjects()
        if sequence <= info.delivered.stream_seq
    ]
    for first in range(0, len(subjects), ACKED_AT_ONCE):
        some = subjects[first : first + ACKED_AT_ONCE]
        control.link.request_many([(subject, ACK) for subject in some])
