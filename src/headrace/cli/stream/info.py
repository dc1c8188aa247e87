"""``headrace stream ls``, ``report``, ``info`` and ``subjects``."""

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

_BUCKETS = ("KV_", "OBJ_")


@online(
    click.option("--subject", metavar="PATTERN", default="", help="only those with this subject"),
    click.option("-n", "--names", is_flag=True, help="names alone, one a line"),
    click.option("-a", "--all", "everything", is_flag=True, help="buckets' streams, too"),
)
async def ls(session: Session, subject: str, names: bool, everything: bool) -> None:
    """List the streams: what each holds, and when it got its last message."""
    now = datetime.now(UTC)
    found = [
        each
        async for each in session.js.streams(subject=subject)
        if everything or not each.config.name.startswith(_BUCKETS)
    ]
    found.sort(key=lambda each: each.config.name)
    if names:
        listed = [each.config.name for each in found]
        session.output.show(listed, *listed)
        return
    table = Table(
        ("NAME", "DESCRIPTION", "CREATED", "MESSAGES", "SIZE", "LAST MESSAGE"),
        right=frozenset(("MESSAGES", "SIZE")),
        empty="no streams; `headrace stream create NAME --subjects 'name.>'` creates one",
    )
    for each in found:
        table.add(
            each.config.name,
            each.config.description,
            f"{each.created[:19].replace('T', ' ')}",
            count_text(each.state.messages),
            bytes_text(each.state.bytes),
            ago(each.state.last_ts, now),
        )
    session.output.show([to_wire(each) for each in found], table)


@online(
    click.option("--subject", metavar="PATTERN", default="", help="only those with this subject"),
)
async def report(session: Session, subject: str) -> None:
    """Say who holds what: messages, bytes, consumers, what was deleted, how far copies are behind."""
    now = datetime.now(UTC)
    found = [each async for each in session.js.streams(subject=subject)]
    found.sort(key=lambda each: -each.state.bytes)
    numbers = frozenset(("CONSUMERS", "MESSAGES", "BYTES", "DELETED", "REPLICAS"))
    table = Table(
        ("STREAM", "STORAGE", "RETENTION", "CONSUMERS", "MESSAGES", "BYTES", "DELETED", "REPLICAS",
         "LAST MESSAGE"),
        right=numbers,
        empty="no streams; `headrace stream create NAME --subjects 'name.>'` creates one",
    )  # fmt: skip
    copies = Table(("STREAM", "KIND", "FROM", "LAG", "ACTIVE"), right=frozenset(("LAG",)))
    rows = []
    for each in found:
        config, state = each.config, each.state
        table.add(
            config.name,
            config.storage,
            config.retention,
            state.consumer_count,
            count_text(state.messages),
            bytes_text(state.bytes),
            count_text(state.num_deleted),
            config.num_replicas,
            ago(state.last_ts, now),
        )
        for kind, origin in [
            *([("mirror", each.mirror)] if each.mirror else []),
            *(("source", source) for source in each.sources),
        ]:
            assert origin is not None
            copies.add(
                config.name, kind, origin.name, f"{origin.lag:,}", duration_text(origin.active)
            )
        rows.append(
            {
                "stream": config.name,
                "storage": config.storage,
                "retention": config.retention,
                "consumers": state.consumer_count,
                "messages": state.messages,
                "bytes": state.bytes,
                "deleted": state.num_deleted,
                "replicas": config.num_replicas,
                "last_ts": state.last_ts,
            }
        )
    tables: list[str | Table] = ["", copies] if copies.rows else []
    session.output.show(rows, table, *tables)


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
