"""``headrace stream info STREAM``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from ...api.base import to_wire
from ...api.streams import LostMessages, StreamConfig, StreamInfo
from ...quantities import counted
from ..shared.configuration import metadata_text
from ..shared.names import STREAM
from ..shared.output import Sheet, Table
from ..shared.units import ago, bytes_text, count_text, duration_text
from ..shared.verbs import Session, online


@online(
    STREAM,
    click.option(
        "--subjects", "pattern", metavar="PATTERN", default="", help="count messages per subject"
    ),
)
async def info(session: Session, stream: str, pattern: str) -> None:
    """Show a stream: configuration, limits, state."""
    found = await (await session.js.stream(stream)).info(subjects=pattern)
    session.output.show(to_wire(found), stream_sheet(found))


@online(STREAM, click.argument("pattern", default=">"))
async def subjects(session: Session, stream: str, pattern: str) -> None:
    """Count the messages of each subject that matches PATTERN (all)."""
    found = await (await session.js.stream(stream)).info(subjects=pattern)
    table = Table(("SUBJECT", "MESSAGES"), right=frozenset(("MESSAGES",)), empty="no such subject")
    for name, count in sorted(found.state.subjects.items()):
        table.add(name, f"{count:,}")
    session.output.show(found.state.subjects, table)


def stream_sheet(found: StreamInfo) -> Sheet:
    """A stream for people."""
    config, state = found.config, found.state
    now = datetime.now(UTC)
    sheet = Sheet(f"Stream {config.name}, created {found.created[:19].replace('T', ' ')} UTC")
    sheet.section("", _origin(config))
    sheet.section("Limits", _limits(config))
    sheet.section("Options", _options(config))
    first, last = ago(state.first_ts, now), ago(state.last_ts, now)
    sheet.section(
        "State",
        (
            ("Messages", count_text(state.messages)),
            ("Bytes", bytes_text(state.bytes)),
            (
                "First sequence",
                f"{state.first_seq:,}" + (f" ({first} ago)" if state.messages else ""),
            ),
            ("Last sequence", f"{state.last_seq:,}" + (f" ({last} ago)" if state.last_seq else "")),
            ("Deleted messages", f"{state.num_deleted:,}" if state.num_deleted else ""),
            ("Lost messages", _lost(state.lost)),
            ("Active consumers", f"{state.consumer_count:,}"),
            ("Subjects", f"{state.num_subjects:,}" if state.num_subjects else ""),
        ),
    )
    sheet.section("Subjects", ((name, f"{count:,}") for name, count in state.subjects.items()))
    sheet.section(
        "Copied from",
        (
            (
                each.name,
                f"lag {counted(each.lag, 'message')}, active {duration_text(each.active)} ago",
            )
            for each in (*([found.mirror] if found.mirror else []), *found.sources)
        ),
    )
    cluster = found.cluster
    if cluster is not None and (cluster.name or cluster.replicas):
        rows = [("Name", cluster.name), ("Leader", cluster.leader)]
        rows += [
            (peer.name, "current" if peer.current else f"{peer.lag:,} behind")
            for peer in cluster.replicas
        ]
        sheet.section("Cluster", rows)
    return sheet


def _lost(lost: LostMessages | None) -> str:
    if lost is None or not lost.msgs:
        return ""
    first, last = lost.msgs[0], lost.msgs[-1]
    where = f"sequence {first:,}" if first == last else f"sequences {first:,} to {last:,}"
    return f"{len(lost.msgs):,} ({where}): damaged on disk"


def _origin(config: StreamConfig) -> list[tuple[str, object]]:
    transform = config.subject_transform
    return [
        ("Description", config.description),
        ("Subjects", ", ".join(config.subjects)),
        ("Mirror of", config.mirror.name if config.mirror else ""),
        ("Sources", ", ".join(each.name for each in config.sources)),
        ("Subject transform", f"{transform.src} → {transform.dest}" if transform else ""),
        (
            "Republished",
            f"{config.republish.src} → {config.republish.dest}" if config.republish else "",
        ),
        ("Replicas", config.num_replicas),
        ("Storage", config.storage),
        ("Compression", config.compression if config.compression != "none" else ""),
        ("Metadata", metadata_text(config.metadata)),
    ]


def _limits(config: StreamConfig) -> list[tuple[str, object]]:
    return [
        ("Retention", config.retention),
        ("When full", f"discard {config.discard}"),
        ("Maximum messages", count_text(config.max_msgs)),
        ("Maximum per subject", count_text(config.max_msgs_per_subject)),
        ("Maximum bytes", bytes_text(config.max_bytes)),
        ("Maximum age", duration_text(config.max_age) if config.max_age else "unlimited"),
        ("Maximum message size", bytes_text(config.max_msg_size)),
        ("Maximum consumers", count_text(config.max_consumers)),
        (
            "Duplicate window",
            duration_text(config.duplicate_window) if config.duplicate_window else "",
        ),
    ]


_SWITCHES = (
    ("sealed", "sealed"),
    ("no_ack", "publishes are not acknowledged"),
    ("allow_direct", "direct get"),
    ("mirror_direct", "direct get from the mirror"),
    ("allow_rollup_hdrs", "rollups"),
    ("allow_msg_ttl", "TTL per message"),
    ("allow_msg_counter", "counters"),
    ("allow_msg_schedules", "scheduled messages"),
    ("allow_atomic", "atomic batches"),
    ("allow_batched", "fast batches"),
    ("deny_delete", "messages cannot be deleted"),
    ("deny_purge", "cannot be purged"),
    ("discard_new_per_subject", "new messages of a full subject are refused"),
)


def _options(config: StreamConfig) -> list[tuple[str, object]]:
    allowed = [text for name, text in _SWITCHES if getattr(config, name)]
    return [("Allowed", ", ".join(allowed))]
