"""``headrace stream create``, ``edit``, ``rm``, ``purge``, ``rmm`` and ``seal``."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Final

import click

from ...api.base import to_wire
from ...api.streams import (
    ConsumerLimits,
    Placement,
    Republish,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)
from ...client.jetstream.streams import loss_of
from ...errors import StreamExistsError
from ..shared.asking import may_go_on
from ..shared.configuration import config_file, differences, key_values, replaced, shown
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.units import DURATION, SIZE, bytes_text, counted
from ..shared.verbs import Declare, Session, online
from .info import stream_sheet

_STORAGE: Final = {"file": "file", "f": "file", "memory": "memory", "m": "memory"}
_RETENTION: Final = {
    "limits": "limits", "interest": "interest", "work": "workqueue", "workqueue": "workqueue",
    "workq": "workqueue",
}  # fmt: skip


def _switch(name: str, text: str) -> Declare:
    """``--NAME`` and ``--no-NAME``."""
    return click.option(f"--{name}/--no-{name}", default=None, help=text)


SETTINGS: Final[tuple[Declare, ...]] = (
    click.option("--subjects", multiple=True, metavar="SUBJECT", help="repeatable, or with commas"),
    click.option("--description", metavar="TEXT", default=None),
    click.option("--storage", type=click.Choice(list(_STORAGE)), default=None, help="where (file)"),
    click.option("--retention", type=click.Choice(list(_RETENTION)), default=None, help="(limits)"),
    click.option("--discard", type=click.Choice(["old", "new"]), default=None, help="when full (old)"),
    click.option("--max-age", type=DURATION, default=None, help="remove messages older than this"),
    click.option("--max-bytes", type=SIZE, default=None, help="how many bytes it holds"),
    click.option("--max-msgs", type=int, default=None, help="how many messages it holds"),
    click.option("--max-msgs-per-subject", type=int, default=None, help="how many of each subject"),
    click.option("--max-msg-size", type=SIZE, default=None, help="the largest message"),
    click.option("--max-consumers", type=int, default=None),
    click.option("--dupe-window", type=DURATION, default=None, help="how long message ids are remembered"),
    click.option("--replicas", type=int, default=None, help="copies in a cluster"),
    click.option("--compression", type=click.Choice(["none", "s2"]), default=None),
    click.option("--first-sequence", type=int, default=None, help="of a new stream"),
    click.option("--mirror", metavar="STREAM", default=None, help="copy this stream"),
    click.option("--source", multiple=True, metavar="STREAM", help="collect from these; repeatable"),
    click.option("--transform", metavar="FROM:TO", default=None, help="store under another subject"),
    click.option("--republish", metavar="FROM:TO", default=None, help="publish again what is stored"),
    click.option("--republish-headers", is_flag=True, help="without the payloads"),
    click.option("--subject-del-markers-ttl", type=DURATION, default=None,
        help="mark subjects whose last message grew old, for so long"),
    click.option("--limit-consumer-inactive", type=DURATION, default=None,
        help="the longest inactive threshold of consumers"),
    click.option("--limit-consumer-max-pending", type=int, default=None,
        help="the most unacknowledged messages of a consumer"),
    click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="repeatable"),
    click.option("--cluster", metavar="NAME", default=None, help="where to place it"),
    click.option("--tag", multiple=True, metavar="TAG", help="place it at servers with these tags"),
    _switch("allow-direct", "direct get: many messages read at once, by any replica (no)"),
    _switch("allow-rollup", "messages that replace all before them"),
    _switch("allow-msg-ttl", "messages with a TTL"),
    _switch("allow-counter", "counters"),
    _switch("allow-schedules", "scheduled messages"),
    _switch("allow-atomic", "atomic batches"),
    _switch("allow-batched", "fast batches"),
    click.option("--ack/--no-ack", default=None, help="confirm what is published (yes)"),
    _switch("deny-delete", "messages cannot be deleted"),
    _switch("deny-purge", "cannot be purged"),
    _switch("discard-per-subject", "refuse new messages of a full subject"),
    click.option("--config", "file", type=click.Path(dir_okay=False, path_type=Path), default=None,
        metavar="FILE", help="a configuration in JSON, as `stream info --json` prints it"),
)  # fmt: skip

_FIELDS: Final = {
    "description": "description", "max_age": "max_age", "max_bytes": "max_bytes", "max_msgs": "max_msgs",
    "max_msgs_per_subject": "max_msgs_per_subject", "max_msg_size": "max_msg_size", "discard": "discard",
    "max_consumers": "max_consumers", "dupe_window": "duplicate_window", "replicas": "num_replicas",
    "compression": "compression", "first_sequence": "first_seq", "allow_direct": "allow_direct",
    "allow_rollup": "allow_rollup_hdrs", "allow_msg_ttl": "allow_msg_ttl",
    "allow_counter": "allow_msg_counter", "allow_schedules": "allow_msg_schedules",
    "allow_atomic": "allow_atomic", "allow_batched": "allow_batched", "deny_delete": "deny_delete",
    "deny_purge": "deny_purge", "discard_per_subject": "discard_new_per_subject",
    "subject_del_markers_ttl": "subject_delete_marker_ttl",
}  # fmt: skip
"""The fields of a configuration by the option that sets them."""


def changes_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that these options set. Raises Failure for what cannot be read."""
    found = {field: given[name] for name, field in _FIELDS.items() if given[name] is not None}
    if given["storage"]:
        found["storage"] = _STORAGE[given["storage"]]
    if given["retention"]:
        found["retention"] = _RETENTION[given["retention"]]
    subjects = [each for text in given["subjects"] for each in text.split(",") if each]
    if subjects:
        found["subjects"] = tuple(subjects)
    if given["mirror"]:
        found["mirror"] = StreamSource(name=given["mirror"])
    if given["source"]:
        found["sources"] = tuple(StreamSource(name=each) for each in given["source"])
    pair = _pair("transform", given)
    if pair is not None:
        found["subject_transform"] = SubjectTransformConfig(src=pair[0], dest=pair[1])
    pair = _pair("republish", given)
    if pair is not None:
        only = given["republish_headers"]
        found["republish"] = Republish(src=pair[0], dest=pair[1], headers_only=only)
    elif given["republish_headers"]:
        raise Failure("--republish-headers needs --republish FROM:TO")
    if given["ack"] is not None:
        found["no_ack"] = not given["ack"]
    limits = {
        field: given[f"limit_consumer_{name}"]
        for name, field in (("inactive", "inactive_threshold"), ("max_pending", "max_ack_pending"))
        if given[f"limit_consumer_{name}"] is not None
    }
    if limits:
        found["consumer_limits"] = ConsumerLimits(**limits)
    if given["metadata"]:
        found["metadata"] = key_values(given["metadata"])
    if given["cluster"] or given["tag"]:
        found["placement"] = Placement(cluster=given["cluster"] or "", tags=given["tag"])
    return found


def _pair(name: str, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Of ``--name FROM:TO``."""
    text = given[name]
    if text is None:
        return None
    src, colon, dest = text.partition(":")
    if not colon or not dest:
        raise Failure(
            f"--{name} {text!r}: accepted is FROM:TO, such as 'orders.*:copy.{{{{wildcard(1)}}}}'"
        )
    return src, dest


@online(
    click.argument("stream", required=False),
    *SETTINGS,
    click.option("--defaults", is_flag=True, hidden=True, expose_value=False),  # it never asks here
)
async def create(session: Session, stream: str | None, file: Path | None, **given: Any) -> None:
    """Create a stream that stores what is published to its subjects.

    \b
    headrace stream create ORDERS --subjects 'orders.>'
    headrace stream create WORK --subjects 'work.*' --retention work --max-age 7d --max-bytes 10GB
    headrace stream create --config stream.json

    Without --subjects a stream stores the subject of its own name. Creating it again with the same settings
    changes nothing.
    """
    config = config_file(file, StreamConfig) if file else StreamConfig()
    changes = changes_of(given)
    if stream:
        changes["name"] = stream
    config = replaced(config, changes)
    if not config.name:
        raise Failure("give the stream a name: headrace stream create NAME --subjects 'name.>'")
    try:
        found = (await session.js.create_stream(config)).cached_info
    except StreamExistsError as error:
        if not error.differences or (file is None and changes.keys() & error.differences.keys()):
            raise _other_settings(error, config.name, changes) from error
        if file is not None:
            raise _other_settings(error, config.name, error.differences) from error
        found = await (await session.js.stream(config.name)).info()
        session.output.note(f"stream {config.name} is there already, with these settings")
    assert found is not None
    session.output.show(to_wire(found), stream_sheet(found))


def _other_settings(error: StreamExistsError, name: str, asked: Container[str]) -> Failure:
    """What to say of a stream that is not as it is to be."""
    told = [
        f"{setting} is {shown(there)}, not {shown(wanted)}"
        for setting, (there, wanted) in error.differences.items()
        if setting in asked
    ]
    return Failure(
        f"stream {name} is there, with other settings: {'; '.join(told) or 'it did not say which'}",
        f"headrace stream edit {name}    changes it; what is not named stays",
        f"headrace stream info {name}    shows it",
    )


@online(STREAM, *SETTINGS, destroys=True)
async def edit(session: Session, stream: str, file: Path | None, **given: Any) -> None:
    """Change settings of a stream; what is not named stays.

    \b
    headrace stream edit ORDERS --max-age 30d --dry-run
    headrace stream edit ORDERS --subjects 'orders.>,returns.>' --force

    Lower limits remove messages at once, if the stream discards old ones: it says how many, and asks.
    """
    found = await session.js.stream(stream)
    present = await found.info()
    before = present.config
    config = config_file(file, StreamConfig) if file else before
    after = replaced(config, {**changes_of(given), "name": stream})
    changed = differences(before, after)
    if not changed.rows:
        raise Failure("nothing to change; give settings such as --max-age 7d, or --config FILE")
    if session.output.is_text:
        session.output.show(None, changed)
    loss = await loss_of(found, present, after)
    if may_go_on(session.output, f"change stream {stream} so{loss.text}", loss.document):
        info = await found.update(after)
        session.output.show(to_wire(info), stream_sheet(info))


@online(STREAM, destroys=True)
async def rm(session: Session, stream: str) -> None:
    """Delete a stream with all its messages and consumers."""
    info = await (await session.js.stream(stream)).info()
    state = info.state
    what = (
        f"delete stream {stream} with {counted(state.messages, 'message')} "
        f"({bytes_text(state.bytes)}) and {counted(state.consumer_count, 'consumer')}"
    )
    if may_go_on(session.output, what):
        await session.js.delete_stream(stream)
        session.output.show({"deleted": stream}, f"deleted stream {stream}")


@online(
    STREAM,
    click.option("--subject", metavar="PATTERN", default="", help="only those of these subjects"),
    click.option(
        "--seq", type=click.IntRange(1), default=None, help="only those below this sequence"
    ),
    click.option(
        "--keep", type=click.IntRange(0), default=None, help="how many of the newest to keep"
    ),
    destroys=True,
)
async def purge(
    session: Session, stream: str, subject: str, seq: int | None, keep: int | None
) -> None:
    """Remove messages of a stream: all, those of a subject, or the older ones."""
    found = await session.js.stream(stream)
    info = await found.info(subjects=subject)
    count = sum(info.state.subjects.values()) if subject else info.state.messages
    what = f"remove messages of stream {stream}"
    what += f" with subject {subject}" if subject else ""
    what += f", below sequence {seq:,}" if seq else ""
    what += f", but the newest {keep:,}" if keep else ""
    if not (seq or keep):
        what = what.replace("messages", counted(count, "message"), 1)
    if may_go_on(session.output, what):
        purged = await found.purge(subject=subject, below=seq or 0, keep=keep or 0)
        session.output.show(
            {"stream": stream, "purged": purged},
            f"removed {counted(purged, 'message')} of stream {stream}",
        )


@online(STREAM, click.argument("sequence", metavar="ID", type=click.IntRange(1)), destroys=True)
async def rmm(session: Session, stream: str, sequence: int) -> None:
    """Remove one message; its bytes are overwritten."""
    found = await session.js.stream(stream)
    message = await found.get_message(sequence)
    what = f"remove message {sequence:,} of stream {stream} ({message.subject})"
    if may_go_on(session.output, what):
        await found.delete_message(sequence)
        document = {"stream": stream, "removed": sequence}
        session.output.show(document, f"removed message {sequence:,} of stream {stream}")


@online(STREAM, destroys=True)
async def seal(session: Session, stream: str) -> None:
    """Make a stream read-only; nothing opens it again."""
    found = await session.js.stream(stream)
    if may_go_on(session.output, f"seal stream {stream} for good"):
        await found.update(sealed=True)
        session.output.show({"sealed": stream}, f"sealed stream {stream}")
