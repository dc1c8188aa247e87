"""``headrace pipeline new``: a first pipeline, made of what its stream has."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

import click

from ...pipeline import scaffold as drafts
from ...pipeline.scaffold import Draft, fields_in
from ..shared.asking import read_line
from ..shared.errors import USAGE, Failure
from ..shared.output import Output
from ..shared.verbs import offline
from .file import FILE

_SERVER: Final = "nats://127.0.0.1:4222"
_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")


@offline(
    FILE,
    click.option("--stream", metavar="NAME", default="", help="what it reads"),
    click.option(
        "--servers", metavar="URLS", default="", help=f"where the stream is; default: {_SERVER}"
    ),
    click.option(
        "--sink", type=click.Choice(drafts.SINKS), default=None, help="files of this format"
    ),
)
def new(output: Output, file: Path, stream: str, servers: str, sink: str | None) -> int:
    """Write a first pipeline to FILE, from a stream to files, with a test beside it. Both run as they are.

    The newest message of the stream is looked at: if it is JSON, its fields become columns. On a terminal
    it asks for what is not given. Nothing that is there is overwritten.
    """
    if file.suffix != ".toml":
        raise Failure(f"{file}: a pipeline's file is called NAME.toml", status=USAGE)
    tests = file.with_suffix(".tests")
    for each in (file, tests):
        if each.exists():
            raise Failure(f"{each} is there already; choose another name")
    servers = servers or os.environ.get("NATS_URL", "") or _SERVER
    stream = stream or _asked(output, "Which stream?", "")
    if not stream:
        raise Failure("which stream does it read? Give --stream NAME", status=USAGE)
    sink = sink or _asked(output, f"Files of which format ({', '.join(drafts.SINKS)})?", "parquet")
    if sink not in drafts.SINKS:
        raise Failure(f"there is no {sink!r}; accepted: {', '.join(drafts.SINKS)}", status=USAGE)
    fields, unseen = fields_in(servers, stream)
    name = _NAME.sub("-", file.stem)[:64]
    written = _write(file, tests, Draft(name, stream, servers, sink, fields))
    document = {
        "file": str(file),
        "fields": fields,
        "unseen": unseen or None,
        "written": [str(each) for each in written],
    }
    notes = [f"{unseen}; it is read as text"] if unseen else []
    steps = [f"headrace pipeline {verb} {file}" for verb in ("validate", "test", "once")]
    output.show(
        document, *(f"{each} written" for each in written), *notes, "next: " + ", ".join(steps)
    )
    return 0


def _asked(output: Output, question: str, default: str) -> str:
    """What is typed, on a terminal; the default elsewhere."""
    if not (output.is_text and sys.stdin.isatty()):
        return default
    shown = f" [{default}]" if default else ""
    return read_line(f"{question}{shown} ").strip() or default


def _write(file: Path, tests: Path, draft: Draft) -> list[Path]:
    """The tests first: a file that is there is a pipeline that is whole."""
    case = tests / "first"
    texts = {
        case / "sources" / f"{draft.source}.jsonl": drafts.given_of(draft),
        case / "views" / "rows.jsonl": drafts.expected_of(draft),
        file: drafts.text_of(draft),
    }
    try:
        for each, text in texts.items():
            each.parent.mkdir(parents=True, exist_ok=True)
            each.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{error.filename} cannot be written: {error.strerror}") from None
    return [file, *(each for each in texts if each != file)]
