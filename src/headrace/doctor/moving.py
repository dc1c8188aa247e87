"""Streams that are being moved, or have been: they take no messages, and somebody has to finish it. Pure."""

from __future__ import annotations

from ..api.roles import RENAMED_TO, REPARTITIONED_TO
from ..api.streams import StreamInfo
from .findings import Findings


def look_at_moving(findings: Findings, stream: StreamInfo, unhandled: int) -> None:
    """Note what ``stream rename`` and ``stream repartition`` have left; ``unhandled``: what its
    consumers have not handled yet."""
    name, told = stream.config.name, stream.config.metadata
    what = f"stream {name}"
    if to := told.get(RENAMED_TO):
        text = f"is being renamed to {to}: it takes no messages, and its consumers pause"
        findings.problem(what, text, f"headrace stream rename {name} {to}")
    if to := told.get(REPARTITIONED_TO):
        text = f"takes no messages any more: {to} takes them, with other partitions"
        if unhandled:
            findings.note(what, f"{text}; its consumers have {unhandled:,} left")
        else:
            mend = (
                f"headrace stream info {to}    if that has the subjects: headrace stream rm {name}"
            )
            findings.note(what, text, mend)
