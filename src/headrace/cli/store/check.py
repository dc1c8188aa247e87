"""``headrace store check``, ``repair`` and ``scrub``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import click

from ...broker.store import Finding
from ...broker.store.storage.scrub import ScrubState
from ...broker.store.storage.scrub import scrub as read_files
from ...quantities import counted
from ..shared.asking import may_go_on
from ..shared.output import Output, Table
from ..shared.progress import progress
from ..shared.units import bytes_text, count_text
from ..shared.verbs import offline
from .export import save_backup
from .opened import Held, opened, streams_in
from .rewriting import rewrite

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
