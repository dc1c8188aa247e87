"""``headrace store …``: the broker's own store is read, checked, mended, exported; no broker runs on it."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import click

from ..api.times import format_time
from ..broker.core.accounts.storage import AccountStorage
from ..broker.core.jetstream.consumer import journal
from ..broker.core.jetstream.consumer.delivery_state import DeliveryState
from ..broker.core.jetstream.engine.registry import CONSUMER, RESTORING, STATE, STREAM
from ..broker.core.jetstream.headers import expires_at
from ..broker.core.jetstream.stream.publishes import leave_gap
from ..broker.core.ports import StreamStore
from ..broker.store import FileStorage, FileSystem, Finding, LocalFiles
from ..broker.store.io.files import ReadOnlyFiles
from ..broker.store.storage.scrub import ScrubState
from ..broker.store.storage.scrub import scrub as read_files
from ..documents import read_json
from ..errors import ProtocolError
from ..files import write_whole, writing
from ..message import StoredRow
from ..quantities import counted
from ..snapshots.archive import END, MAGIC, Unpacker, consumer_entry, message_entry, state_entry
from ..snapshots.contents import ConsumerContent, Ended, MessageContent
from ..snapshots.framing import FRAME_BYTES_MAX, IDENTIFIER, frame
from ..wire.headers import parse_headers
from .shared.asking import may_go_on
from .shared.errors import Failure
from .shared.output import Advance, Output, Table, progress
from .shared.units import bytes_text, count_text
from .shared.verbs import offline

_BATCH: Final = 1000
_BATCH_BYTES: Final = 4 << 20


@contextmanager
def opened(directory: str, *, looking: bool) -> Iterator[tuple[FileStorage, FileSystem]]:
    """The store in a directory; ``looking`` leaves it as it is. Raises Failure if there is none."""
    place = Path(directory)
    if not (place / "streams").is_dir() or not (place / "meta").is_dir():
        raise Failure(
            f"{directory} is not the store of a broker",
            "give the directory of headrace serve -sd DIR",
        )
    files: ReadOnlyFiles | LocalFiles = ReadOnlyFiles() if looking else LocalFiles()
    storage = FileStorage(os.fspath(place), fs=files, threaded=False)
    try:
        yield storage, files
    finally:
        storage.close()


@dataclass
class Held:
    """A stream in a store.

    Attributes:
        account: whose it is; "" for the default account.
        name: its name there.
        full_name: its name in the store.
        entry: what the journal says of it: ``config`` and ``created_ns``; empty if that is lost.
        store: its messages.
        unreadable: sequences that should be there and cannot be read, once ``rows`` is through.
    """

    account: str
    name: str
    full_name: str
    entry: dict[str, Any]
    store: StreamStore
    consumers: list[ConsumerContent]
    unreadable: list[int] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """A name for files about it."""
        return self.label.replace("/", "~")

    @property
    def label(self) -> str:
        """Its name, with its account's."""
        return f"{self.account}/{self.name}" if self.account else self.name

    def rows(self) -> Iterator[StoredRow]:
        """Every message that can be read, in order."""
        store, self.unreadable = self.store, []
        sequence, last = store.first_seq, store.last_seq
        while sequence <= last:
            found = store.rows(sequence, None, _BATCH, _BATCH_BYTES, last)
            upto = found[-1][0] if found else last
            missing = store.count(None, sequence) - store.count(None, upto + 1) - len(found)
            if missing:
                read = {row[0] for row in found}
                there = store.present(range(sequence, upto + 1))
                self.unreadable += [each for each in there if each not in read]
            yield from found
            sequence = upto + 1


def streams_in(storage: FileStorage) -> Iterator[Held]:
    """Every stream of every account. Raises StoreError for one that cannot be opened."""
    for full_name in storage.streams():  # a list: it may change meanwhile
        prefix, _, name = full_name.rpartition("/")
        account = unquote(prefix)
        part = AccountStorage(storage, account)
        saved = dict(part.meta.load())
        if RESTORING + name in saved:
            continue  # a restore was cut off: the next start removes what there is of it
        known = saved.get(STREAM + name)
        entry: dict[str, Any] = read_json(known[0]) if known is not None else {}
        store = storage.open_stream(full_name, expires_at)
        consumers = [
            _consumer(key, saved)
            for key in saved
            if key.startswith(f"{CONSUMER}{name}/") and STATE + key[len(CONSUMER) :] in saved
        ]
        yield Held(account, name, full_name, entry, store, consumers)


def _consumer(key: str, saved: dict[str, tuple[bytes, list[bytes]]]) -> ConsumerContent:
    own = key.removeprefix(CONSUMER)
    config: dict[str, Any] = read_json(saved[key][0])["config"]
    name = own.partition("/")[2]
    backoff = tuple(config.get("backoff") or ())
    state = DeliveryState(
        start_seq=1,
        tracks=config.get("ack_policy") != "none",
        ack_wait_ns=int(config.get("ack_wait", 0)),
        backoff_ns=backoff,
    )
    snapshot, deltas = saved[STATE + own]
    journal.restore(state, snapshot, deltas, 0)
    return ConsumerContent(
        name, {**config, "name": name}, journal.backup_of(state, 0, (1 << 63) - 1)
    )


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


_FLUSH_BYTES: Final = 16 << 20
_CHUNK: Final = 1 << 20


def rewrite(storage: FileStorage, full_name: str, backup: Path) -> None:
    """Replace the stream's files by what its backup holds. Raises Failure if the disk refuses.

    The stream's configuration and consumers, which the journal has, stay as they are.
    """
    storage.delete_stream(full_name)
    store = storage.create_stream(full_name)
    unpacker = Unpacker(full_name.rpartition("/")[2])
    with (backup / "stream.tar.s2").open("rb") as file:
        while chunk := file.read(_CHUNK):
            unpacker.feed(chunk)
            while (found := unpacker.step()) is not None:
                for content in found:
                    if isinstance(content, MessageContent):
                        _append(store, content)
                    elif isinstance(content, Ended) and content.last_seq > store.last_seq:
                        store.skip_to(content.last_seq + 1)
            if storage.pending_bytes > _FLUSH_BYTES:
                _flush(storage, backup)
    unpacker.finish()
    _flush(storage, backup)


def _append(store: StreamStore, message: MessageContent) -> None:
    sequence, subject, headers, payload, stamp_ns = message
    if sequence > store.last_seq + 1:
        leave_gap(store, sequence, stamp_ns)
    expires_ns = expires_at(headers, stamp_ns) if headers else 0
    if expires_ns:
        store.append_expiring(subject, headers, payload, stamp_ns, expires_ns)
    else:
        store.append(subject, headers, payload, stamp_ns)


def _flush(storage: FileStorage, backup: Path) -> None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    if outcome != [None]:
        raise Failure(
            f"the stream could not be written anew: {outcome[0]}",
            f"headrace stream restore {backup}    brings it back, once a broker runs",
        )


_DIR: Final = click.argument("directory", metavar="DIR")


def _read(held: Held, output: Output) -> int:
    """Read all of a stream; how many messages there were."""
    count = 0
    with progress(output, held.label, held.store.messages) as advance:
        for _ in held.rows():
            count += 1
            if count % 1000 == 0:
                advance(1000)
    return count


@offline(_DIR)
def check(output: Output, directory: str) -> int | None:
    """Read every message of a store and tell what is wrong, as a start of the broker would find it.

    Nothing is changed. The exit status is 1 if something is wrong.
    """
    table = Table(
        ("STREAM", "MESSAGES", "BYTES", "FIRST", "LAST", "CONSUMERS", "UNREADABLE"),
        title=directory,
        right=frozenset({"MESSAGES", "BYTES", "FIRST", "LAST", "CONSUMERS", "UNREADABLE"}),
        empty="there are no streams",
    )
    documents: list[dict[str, Any]] = []
    with opened(directory, looking=True) as (storage, _):
        for held in streams_in(storage):
            count = _read(held, output)
            state, unreadable = held.store.state, len(held.unreadable)
            table.add(
                held.label,
                count_text(count),
                bytes_text(state.bytes),
                state.first_seq,
                state.last_seq,
                len(held.consumers),
                unreadable,
            )
            documents.append(
                {
                    "stream": held.label,
                    "messages": count,
                    "bytes": state.bytes,
                    "first_seq": state.first_seq,
                    "last_seq": state.last_seq,
                    "consumers": len(held.consumers),
                    "unreadable": held.unreadable,
                    "configuration": bool(held.entry),
                }
            )
        findings = list(storage.report)
    output.show({"streams": documents, "findings": [_document(f) for f in findings]}, table)
    _tell(output, findings)
    damaged = findings or any(d["unreadable"] or not d["configuration"] for d in documents)
    return 1 if damaged else None


def _document(finding: Finding) -> dict[str, Any]:
    return {
        "path": finding.path,
        "offset": finding.offset,
        "what": finding.what,
        "stream": finding.stream,
        "lost": list(finding.lost) if finding.lost else None,
    }


def _tell(output: Output, findings: list[Finding]) -> None:
    if output.is_text:
        for finding in findings:
            click.echo(f"{finding.path}, byte {finding.offset}: {finding.what}", err=True)


@offline(
    _DIR,
    click.option(
        "--save", metavar="OUT", required=True, help="where backups of damaged streams go first"
    ),
    destroys=True,
)
def repair(output: Output, directory: str, save: str) -> None:
    """Write damaged streams anew, without the messages that cannot be read any more.

    What can be read is saved as backups in OUT first. Afterwards the streams have gaps in place of what is
    lost; sequences, times and consumers stay. Damaged bytes are kept in DIR/quarantine.
    """
    with opened(directory, looking=True) as (storage, _):
        lost = {held.label: _lost(held, storage.report, output) for held in streams_in(storage)}
        lost = {name: places for name, places in lost.items() if places}
    if not lost:
        output.show({"repaired": []}, "no stream is damaged")
        return
    what = (
        f"write {len(lost)} damaged streams anew ({', '.join(lost)}), without what cannot be read"
    )
    if not may_go_on(output, what):
        return
    with opened(directory, looking=False) as (storage, _):
        for held in [held for held in streams_in(storage) if held.label in lost]:
            with progress(output, held.label, held.store.messages) as advance:
                save_backup(held, Path(save), advance)
            rewrite(storage, held.full_name, Path(save) / held.folder)
    output.show({"repaired": list(lost)}, f"repaired {', '.join(lost)}; what was read is in {save}")


def _lost(held: Held, report: list[Finding], output: Output) -> int:
    """How many places of a stream are damaged: found when it was opened, and by reading it."""
    _read(held, output)
    found = [finding for finding in report if finding.stream == held.full_name and finding.lost]
    return len(found) + len(held.unreadable)


@offline(
    _DIR,
    click.option(
        "--rate", metavar="MB", type=click.FloatRange(0.1), default=None, help="megabytes a second"
    ),
)
def scrub(output: Output, directory: str, rate: float | None) -> int | None:
    """Read the files that are no longer written and compare checksums, to find what the disk has lost.

    Nothing is changed. A running broker does this by itself once a day. The exit status is 1 if something is
    damaged.
    """
    findings: list[Finding] = []
    state = ScrubState()
    with opened(directory, looking=True) as (storage, files):
        for name in storage.streams():
            storage.open_stream(name)
        work = storage.sealed_files()
        with progress(output, "scrub", sum(f.end for f in work), of_bytes=True) as advance:
            for nbytes in read_files(files, work, state, findings.append):
                advance(nbytes)
                if rate is not None:  # a pace is what was asked for: nobody else is in this process
                    time.sleep(nbytes / rate / 1e6)
    document = {
        "files": state.files,
        "bytes": state.nbytes,
        "findings": [_document(finding) for finding in findings],
    }
    damaged = counted(len(findings), "damaged place")
    text = f"read {counted(state.files, 'file')} ({bytes_text(state.nbytes)}), {damaged}"
    output.show(document, text)
    _tell(output, findings)
    return 1 if findings else None
