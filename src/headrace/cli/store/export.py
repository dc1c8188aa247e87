"""``headrace store export``: streams out of a store without a broker."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any, Final

import click

from ...api.times import format_time
from ...errors import ProtocolError
from ...files import write_whole, writing
from ...quantities import counted
from ...snapshots.archive import END, MAGIC, consumer_entry, message_entry, state_entry
from ...snapshots.framing import FRAME_BYTES_MAX, IDENTIFIER, frame
from ...wire.headers import parse_headers
from ..shared.errors import Failure
from ..shared.output import Output
from ..shared.progress import Advance, progress
from ..shared.verbs import offline
from .opened import Held, opened, streams_in

_SLICE: Final = 1 << 20


@offline(
    click.argument("directory", metavar="DIR"),
    click.option("--to", "target", metavar="OUT", required=True, help="the directory to write to"),
    click.option("--stream", "names", metavar="NAME", multiple=True, help="these streams alone"),
    click.option(
        "--form",
        type=click.Choice(["backup", "jsonl"]),
        default="backup",
        help="backups as the nats tool has them, or a file of JSON lines each (backup)",
    ),
)
def export(
    output: Output, directory: str, target: str, names: tuple[str, ...], form: str
) -> int | None:
    """Save the streams of a store while no broker runs on it, as backups or as JSON lines.

    \b
    headrace store export /var/lib/headrace --to backups
    headrace store export /var/lib/headrace --to messages --form jsonl --stream ORDERS

    What is damaged is left out and named, and the exit status is 1: this gets out what is left of a store.
    """
    place = Path(target)
    documents: list[dict[str, Any]] = []
    with opened(directory, looking=True) as (storage, _):
        for held in streams_in(storage):
            if names and held.name not in names and held.label not in names:
                continue
            with progress(output, held.label, held.store.messages) as advance:
                count = (
                    _jsonl(held, place, advance)
                    if form == "jsonl"
                    else save_backup(held, place, advance)
                )
            documents.append(
                {"stream": held.label, "messages": count, "unreadable": held.unreadable}
            )
        findings = [finding.what for finding in storage.report]
    if names and len(documents) < len(set(names)):
        raise Failure("not all of these streams are there", f"headrace store check {directory}")
    lines = [f"{d['stream']}: {counted(d['messages'], 'message')}{_left_out(d)}" for d in documents]
    output.show({"streams": documents, "findings": findings}, "\n".join(lines) or "no streams")
    return 1 if findings or any(d["unreadable"] for d in documents) else None


def _left_out(document: dict[str, Any]) -> str:
    count = len(document["unreadable"])
    return f", {count:,} cannot be read and are left out" if count else ""


def _jsonl(held: Held, place: Path, advance: Advance) -> int:
    """One line for each message."""
    place.mkdir(parents=True, exist_ok=True)
    count = 0
    with writing(place / f"{held.folder}.jsonl", "w") as file:
        for sequence, subject, headers, payload, stamp_ns in held.rows():
            line: dict[str, Any] = {
                "seq": sequence,
                "time": format_time(stamp_ns),
                "subject": subject.decode(errors="replace"),
            }
            if headers:
                line |= _headers(headers)
            try:
                line["payload"] = payload.decode()
            except UnicodeDecodeError:
                line["payload_base64"] = base64.b64encode(payload).decode()
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
            advance(1)
    return count


def _headers(block: bytes) -> dict[str, Any]:
    try:
        return {"headers": [list(pair) for pair in parse_headers(block).items()]}
    except ProtocolError:  # whatever a publisher sent
        return {"headers_base64": base64.b64encode(block).decode()}


def save_backup(held: Held, place: Path, advance: Advance) -> int:
    """A directory as the nats tool makes it. Raises Failure without a configuration."""
    if not held.entry:
        raise Failure(
            f"the configuration of stream {held.label} is lost",
            "--form jsonl    saves its messages all the same",
        )
    state = held.store.state
    document = {
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "first_ts": format_time(state.first_ns),
        "last_seq": state.last_seq,
        "last_ts": format_time(state.last_ns),
        "consumer_count": len(held.consumers),
    }
    folder = place / held.folder
    folder.mkdir(parents=True, exist_ok=True)
    now_ns, count = time.time_ns(), 0
    with writing(folder / "stream.tar.s2") as file:
        file.write(IDENTIFIER)
        out = bytearray(MAGIC + state_entry(document, now_ns))
        for consumer in held.consumers:
            out += consumer_entry(consumer.name, consumer.config, consumer.state, now_ns)
        for row in held.rows():
            out += message_entry(*row)
            count += 1
            advance(1)
            if len(out) >= _SLICE:
                _write(file, out)
        out += END
        _write(file, out)
    about = {"config": held.entry["config"], "state": document}
    write_whole(folder / "backup.json", json.dumps(about, indent=2))
    return count


def _write(file: Any, out: bytearray) -> None:
    for at in range(0, len(out), FRAME_BYTES_MAX):
        file.write(frame(bytes(out[at : at + FRAME_BYTES_MAX])))
    out.clear()
