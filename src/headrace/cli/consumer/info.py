"""``headrace consumer info STREAM CONSUMER``."""

from __future__ import annotations

from datetime import UTC, datetime

from ...api.base import to_wire
from ...api.consumers import ConsumerConfig, ConsumerInfo
from ..shared.configuration import metadata_text
from ..shared.names import CONSUMER, STREAM
from ..shared.output import Sheet
from ..shared.units import ago, bytes_text, count_text, duration_text
from ..shared.verbs import Session, online


@online(STREAM, CONSUMER)
async def info(session: Session, stream: str, consumer: str) -> None:
    """Show a consumer: configuration, position, what is left."""
    found = await (await session.js.consumer(stream, consumer)).info()
    session.output.show(to_wire(found), consumer_sheet(found))


def consumer_sheet(found: ConsumerInfo) -> Sheet:
    """A consumer for people."""
    config = found.config
    created = found.created[:19].replace("T", " ")
    sheet = Sheet(f"Consumer {found.name} of stream {found.stream_name}, created {created} UTC")
    sheet.section("", _what(config))
    sheet.section("Limits", _limits(config))
    sheet.section("State", _state(found))
    sheet.section(
        "Priority groups",
        (
            (
                group.group,
                f"pinned client {group.pinned_client_id}" if group.pinned_client_id else "nobody",
            )
            for group in found.priority_groups
        ),
    )
    return sheet


def _what(config: ConsumerConfig) -> list[tuple[str, object]]:
    filters = config.filter_subjects or ((config.filter_subject,) if config.filter_subject else ())
    where = {
        "by_start_sequence": f"from sequence {config.opt_start_seq:,}",
        "by_start_time": f"from {config.opt_start_time}",
        "last_per_subject": "the last of each subject",
    }
    return [
        ("Description", config.description),
        ("Kind", f"push to {config.deliver_subject}" if config.deliver_subject else "pull"),
        ("Delivery group", config.deliver_group),
        ("Filter", ", ".join(filters) or "everything"),
        ("Deliver", where.get(config.deliver_policy, config.deliver_policy)),
        ("Acknowledgement", config.ack_policy),
        ("Replay", config.replay_policy if config.replay_policy != "instant" else ""),
        ("Headers only", "yes" if config.headers_only else ""),
        ("Kept", "until deleted" if config.durable_name else "while it is used"),
        ("Priority policy", config.priority_policy if config.priority_policy != "none" else ""),
        (
            "Pin ends after",
            duration_text(config.priority_timeout) if config.priority_timeout else "",
        ),
        ("Metadata", metadata_text(config.metadata)),
    ]


def _limits(config: ConsumerConfig) -> list[tuple[str, object]]:
    seconds = config.inactive_threshold
    return [
        ("Time for an answer", duration_text(config.ack_wait) if config.ack_wait else ""),
        ("Waits between tries", ", ".join(map(duration_text, config.backoff))),
        ("Maximum tries", count_text(config.max_deliver)),
        ("Maximum unacked", count_text(config.max_ack_pending or -1)),
        ("Maximum waiting pulls", count_text(config.max_waiting) if config.max_waiting else ""),
        ("Maximum batch of a pull", count_text(config.max_batch) if config.max_batch else ""),
        ("Maximum wait of a pull", duration_text(config.max_expires) if config.max_expires else ""),
        ("Maximum bytes of a pull", bytes_text(config.max_bytes) if config.max_bytes else ""),
        ("Removed when unused for", duration_text(seconds) if seconds else ""),
    ]


def _state(found: ConsumerInfo) -> list[tuple[str, object]]:
    now = datetime.now(UTC)
    delivered, floor = found.delivered, found.ack_floor
    paused = f"yes, for {duration_text(found.pause_remaining)} more" if found.paused else ""
    last, acked = ago(delivered.last_active, now), ago(floor.last_active, now)
    return [
        ("Paused", paused),
        (
            "Last delivered",
            f"message {delivered.consumer_seq:,}, stream sequence {delivered.stream_seq:,}"
            + (f", {last} ago" if last != "never" else ""),
        ),
        (
            "Acknowledged up to",
            f"message {floor.consumer_seq:,}, stream sequence {floor.stream_seq:,}"
            + (f", {acked} ago" if acked != "never" else ""),
        ),
        ("Unacknowledged", f"{found.num_ack_pending:,}"),
        ("Delivered again", f"{found.num_redelivered:,}"),
        ("Waiting", f"{found.num_pending:,}"),
        ("Waiting pulls", "" if found.config.deliver_subject else f"{found.num_waiting:,}"),
        (
            "Somebody listens",
            ("yes" if found.push_bound else "no") if found.config.deliver_subject else "",
        ),
    ]
