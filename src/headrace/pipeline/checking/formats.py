"""Formats and places of files that a pipeline names: whether there are such, without Spark."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..model import FILE_SINKS, Declared, Sink, Source
from ..problems import Place, Problem, did_you_mean

_JETSTREAM: Final = "jetstream"
_FILES: Final = ("parquet", "orc", "json", "csv", "text", "avro", "xml", "delta")
_SOURCES: Final = (_JETSTREAM, *_FILES, "binaryfile", "kafka", "rate", "rate-micro-batch", "socket")
_TABLES: Final = (_JETSTREAM, *_FILES, "binaryfile", "kafka", "jdbc", "libsvm", "image")
_SINKS: Final = (_JETSTREAM, *_FILES, "kafka", "console", "memory", "noop")
_ELSEWHERE: Final = ("spark.jars", "spark.plugins", "spark.driver.extraclasspath", "spark.submit")
_URL: Final = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def check_formats(declared: Declared) -> Iterator[Problem]:
    """Formats that there are not, and files without a place or at one that cannot be written."""
    for source in declared.sources.values():
        known = _SOURCES if source.streaming else _TABLES
        yield from _check_format(declared, source, known)
        if source.format.lower() in FILE_SINKS and not _path(source):
            yield Problem(source.place, f"source {source.name!r}: option 'path' is missing")
    for sink in declared.sinks.values():
        if sink.function is None:
            yield from _check_format(declared, sink, _SINKS)
        if sink.format.lower() in FILE_SINKS:
            yield from _check_path(declared, sink)
    is_here = declared.is_local_checkpoint and declared.checkpoint
    if is_here and (why := unwritable(declared.checkpoint_path)):
        yield Problem(declared.place, f"checkpoint is {declared.checkpoint}: {why}")


def _check_format(
    declared: Declared, part: Source | Sink, known: tuple[str, ...]
) -> Iterator[Problem]:
    name = part.format.lower()
    is_elsewhere = any(key.lower().startswith(_ELSEWHERE) for key in declared.conf)
    if not name or name in known or "." in name or is_elsewhere:
        return
    if importlib.util.find_spec(f"pyspark_{name}") is not None:  # Spark finds it by this name
        return
    kind = "source" if isinstance(part, Source) else "sink"
    shown = [each for each in known if each != "binaryfile"]
    hint = did_you_mean(part.format, shown)
    if not hint.startswith("; accepted"):
        hint += f"; there are: {', '.join(shown)}"
    text = f"{kind} {part.name!r}: there is no format {part.format!r} here{hint}"
    yield Problem(part.place, f"{text}. A format of a package needs it in spark.jars.packages")


def _check_path(declared: Declared, sink: Sink) -> Iterator[Problem]:
    path = _path(sink)
    if not path:
        text = f"sink {sink.name!r}: option 'path' is missing, the folder that {sink.format} files go to"
        yield Problem(sink.place, text)
    elif not _URL.match(path) and (why := unwritable(declared.file.parent.absolute() / path)):
        place: Place = next(
            (at for name, at in sink.lines.items() if name.lower() == "path"), sink.place
        )
        yield Problem(place, f"sink {sink.name!r}: path is {path}: {why}")


def _path(part: Source | Sink) -> str:
    return next((value for name, value in part.options.items() if name.lower() == "path"), "")


def unwritable(folder: Path) -> str:
    """Why a folder cannot be made or written here; "" if it can. Nothing is changed."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{there} is a file, no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written by this user"
    return ""
