"""The options of a pipeline's sources and sinks: parsed, and as Spark gets them in one query. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..spark.options import SourceOptions, parse_options
from ..spark.sink.options import SinkOptions, parse_sink_options
from .graph import quarantined, sources_of
from .model import FILE_SINKS, WRITTEN_AS_FILES, Declared, Sink, Source

if TYPE_CHECKING:
    from .checkpoints.checkpoint import Generation

JETSTREAM: Final = "jetstream"
_URL: Final = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|/)", re.IGNORECASE)


def source_options(source: Source) -> SourceOptions:
    """The parsed options of a jetstream source. Raises ConfigurationError."""
    return parse_options(source.options, streaming=source.streaming)


def sink_options(sink: Sink) -> SinkOptions:
    """The parsed options of a jetstream sink. Raises ConfigurationError."""
    return parse_sink_options(sink.options, streaming=True)


def columns_of_place(source: Source) -> tuple[str, str]:
    """The columns of a jetstream source that hold the sequence and the stream of a message."""
    prefix = source_options(source).decoding.metadata_prefix
    return f"{prefix}sequence", f"{prefix}stream"


def options_of_source(
    declared: Declared, source: Source, query: str, generation: Generation | None
) -> dict[str, str]:
    """The options of a source in one query: its own durable, and where its generation begins."""
    options = _with_paths(declared, source.format, source.options)
    users = [
        sink.name
        for sink in declared.sinks.values()
        if source in sources_of(declared, sink.of or quarantined(declared, sink)[0])
    ]
    for name in [each for each in options if each.lower() == "durable"]:
        if len(users) > 1:
            options[name] = f"{options[name]}-{query}"
    if generation is not None and source.name in generation.starts:
        options = generation.starts[source.name].options(options)
    return options


def options_of_sink(declared: Declared, sink: Sink, suffix: str) -> dict[str, str]:
    """The options of a sink; results of later generations and of replays are set apart by ``suffix``."""
    options = _with_paths(declared, sink.format, sink.options)
    for name in options:
        is_path = name.lower() == "path" and sink.format.lower() in WRITTEN_AS_FILES
        if is_path or name.lower() == "sinkid":
            options[name] += suffix
    return options


def place_of_results(declared: Declared, sink: Sink, suffix: str) -> str:
    """Where Spark's file sink writes: a path or a URL; "" if the sink is another one."""
    if sink.format.lower() not in FILE_SINKS:
        return ""
    options = options_of_sink(declared, sink, suffix)
    return next((value for key, value in options.items() if key.lower() == "path"), "")


def _with_paths(declared: Declared, kind: str, given: Mapping[str, str]) -> dict[str, str]:
    """Options in which a relative path begins at the pipeline's file."""
    options = dict(given)
    for name, value in given.items():
        if name.lower() == "path" and kind != "jetstream" and not _URL.match(value):
            options[name] = str(declared.file.parent.absolute() / value)
    return options
