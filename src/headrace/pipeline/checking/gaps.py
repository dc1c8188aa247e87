"""Whether messages are gone that the next run of a query would have to read: it would refuse to go on."""

from __future__ import annotations

from dataclasses import replace

from ...documents import read_json
from ...errors import ConfigurationError, HeadraceError
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.loss import may_be_loss
from ...spark.offsets import DataLossError, read_offsets, refusal, reset_of
from ..checkpoints.checkpoint import checkpoint_of, read_end
from ..graph import quarantined, sources_of
from ..model import Declared, Problem, Sink, Source
from ..options import JETSTREAM, source_options
from .failed_batch import NotSearchedError, in_order
from .sources_and_sinks import CONNECT_S


def gaps(declared: Declared) -> list[Problem]:
    """For each query what the next run refuses, and the command that leads on.

    Servers that are away are told elsewhere.
    """
    return [problem for sink in declared.sinks.values() for problem in _of_sink(declared, sink)]


def _of_sink(declared: Declared, sink: Sink) -> list[Problem]:
    generation = checkpoint_of(declared, sink.name).current()
    done = read_end(generation) if "://" not in generation.path else None
    if done is None:
        return []
    name = sink.of or quarantined(declared, sink)[0]
    streaming = [each for each in sources_of(declared, name) if each.streaming]
    if any(each.format != JETSTREAM for each in streaming):
        return []
    try:
        placed = in_order(streaming, done)
    except NotSearchedError:
        return []
    found = []
    for index, source in placed:
        try:
            _check(source, done.offsets[index])
        except DataLossError as error:
            command = declared.command("reset", "--query", sink.name, "--to", "earliest")
            text = (
                f"query {sink.name!r} will not go on: {error}; or begin a new generation: {command}"
            )
            found.append(Problem(source.place, text))
        except HeadraceError:
            continue  # that the server is away, or the checkpoint another's, is told elsewhere
    return found


def _check(source: Source, text: str) -> None:
    """Raise DataLossError if messages after an offset are lost, and the source is to fail then."""
    options = source_options(source)
    if not text or not options.fail_on_data_loss or options.group or options.overflow:
        return
    quick = replace(options.connection, connect_timeout_s=CONNECT_S, request_timeout_s=CONNECT_S)
    link = Link.open(quick)
    try:
        for stream, offset in read_offsets(read_json(text), options.streams).items():
            if stream not in options.streams:
                raise ConfigurationError("a stream that is not read any more")
            control = Control(link, stream)
            head, config = control.head()
            same = control.sameness(offset, head)
            if reason := reset_of(offset, head, stream, same):
                if options.on_stream_reset == "fail":
                    raise refusal(reason, offset, same)
                continue
            if head.first_seq > offset.seq + 1 and may_be_loss(config, head, offset.since_ns):
                raise DataLossError(
                    f"stream {stream!r} begins at sequence {head.first_seq} now; up to "
                    f"{head.first_seq - 1 - offset.seq} messages from {offset.seq + 1} on were removed "
                    "before this query read them (limits or purge). Set failOnDataLoss=false to go on "
                    "without them"
                )
    finally:
        link.close()
