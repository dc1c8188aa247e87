"""Running a range of a stream through a query again, into results of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from .checking import JETSTREAM
from .checkpoints import Start
from .frames import FILE_FORMATS, Frames, loaded, options_of_sink
from .model import Declared, Sink
from .problems import PipelineError, Problem
from .resets import streams_of
from .spark_errors import sentence_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DONE = "_SUCCESS"


def replay(
    declared: Declared,
    spark: SparkSession,
    sink: Sink,
    into: Sink,
    name: str,
    begin: Start,
    end: Start,
) -> None:
    """Write the rows that ``sink`` would get of a fixed range, as one batch; its checkpoint is not touched.

    Args:
        into: whose format and options are used; ``sink`` itself, or another one.
        name: sets the results apart: files go to ``<path>-<name>``, a ``sinkId`` becomes ``<sinkId>-<name>``.
        begin, end: both inclusive; ``end`` may be ``latest``.

    Raises:
        ConfigurationError: there are results of this name already, or a source cannot be read again.
        PipelineError: it failed, in the line of what failed.
    """
    bounds = {each.name: _bounds(begin, end) for each in streams_of(declared, sink)}
    frame = Frames(spark, declared, sink.name, bounds=bounds).of_sink(sink)
    options = options_of_sink(declared, into, f"-{name}")
    if into.format == JETSTREAM and "sinkid" in {each.lower() for each in options}:
        options["batchId"] = "0"  # a replay is one batch, and again the same one if it was killed
    try:
        if into.function is not None:
            loaded(into.function)(frame, 0)
            return
        writer: Any = frame.write.format(into.format).mode(_mode(into, options)).options(**options)
        if into.partition_by:
            writer = writer.partitionBy(*into.partition_by)
        writer.save()
    except ConfigurationError:
        raise
    except Exception as error:
        raise PipelineError([Problem(into.place, sentence_of(error))]) from error


def _bounds(begin: Start, end: Start) -> dict[str, str]:
    options = begin.options({})
    if end.kind == "time":
        return options | {"endingTimestamp": end.value}
    return options | {"endingOffsets": end.value or end.kind}


def _mode(into: Sink, options: dict[str, str]) -> str:
    """Files of a replay that was killed are replaced; those of a finished one are not."""
    path = next((value for key, value in options.items() if key.lower() == "path"), "")
    if into.format.lower() not in FILE_FORMATS or "://" in path:
        return "append"
    if (Path(path) / _DONE).exists():
        raise ConfigurationError(
            f"{path} has the results of an earlier replay; choose another name"
        )
    return "overwrite"
