"""What a lag counts: messages that make rows, where the stream's subjects tell them from markers. Pure."""

from __future__ import annotations

from ...api.streams import StreamConfig
from ...sink_markers import SPACE
from ..options import SourceOptions


def counted_subjects(options: SourceOptions, config: StreamConfig) -> tuple[str, ...]:
    """The subjects of the messages that a query still has to read; none: all of the stream.

    Markers of sinks are no rows. A stream that has subjects of its own for them is counted by its others.
    Elsewhere subjects do not tell: below a ``markerPrefix``, and where a stream copies others or renames.
    """
    if options.subjects or options.include_markers:
        return options.subjects
    if config.sources or config.mirror is not None or config.subject_transform is not None:
        return ()
    others = tuple(each for each in config.subjects if not each.startswith(SPACE))
    return others if 0 < len(others) < len(config.subjects) else ()
