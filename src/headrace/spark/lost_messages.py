"""What a query that goes on without lost messages says of them: log, and a file beside its checkpoint.

With ``failOnDataLoss=false`` a query goes on where messages were removed before it read them. Which ones, and
how many, is known where a batch is planned, and in a task that reads while messages are removed. Both add a
line to one file, if there is one; so the runner of a pipeline can tell, and its status.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from ..documents import read_json
from .offsets import DataLossError, StreamHead

_LOG: Final = logging.getLogger("headrace.spark")


class Loss(NamedTuple):
    """Sequences ``first`` to ``last`` of a stream, of which ``messages`` at most were lost.

    ``first`` is 0 where it is not known, ``last`` where a stream was replaced by another one.
    """

    stream: str
    first: int
    last: int
    messages: int

    def __str__(self) -> str:
        if not self.last:
            return (
                f"stream {self.stream!r} was replaced: what the query had not read after sequence "
                f"{self.first - 1} of the one before is lost"
            )
        if not self.first:
            return (
                f"all messages of a batch of stream {self.stream!r}, up to sequence {self.last}, were "
                "removed before they were read"
            )
        return (
            f"up to {self.messages} messages of stream {self.stream!r}, sequences {self.first} to "
            f"{self.last}, were removed before they were read"
        )


def lost_before(stream: str, before: int, last: int, rows: int, head: StreamHead) -> Loss:
    """Of the messages after ``before`` up to ``last``, of which ``rows`` came: those the head has passed."""
    passed = min(head.first_seq - 1, last)
    return Loss(stream, before + 1, passed, min(passed - before, last - before - rows))


def lost_in_task(loss: Loss, head: StreamHead, file: str, *, fail: bool) -> None:
    """Messages were removed while a task read them: raise DataLossError, or say so and go on."""
    if not fail:
        tell(loss, file)
        return
    raise DataLossError(
        f"stream {loss.stream!r} begins at sequence {head.first_seq} now: messages after "
        f"{loss.first - 1} were removed while a task was reading them (limits or purge). Read more "
        "often, keep messages longer, or set failOnDataLoss=false to go on without them"
    )


def tell(loss: Loss, file: str = "") -> None:
    """Say it in the log, and add it to the file if there is one."""
    _LOG.warning("%s; the query goes on without them", loss)
    if not file:
        return
    line = json.dumps(loss._asdict()) + "\n"
    try:
        # One write at the end of the file: tasks and the driver do not cut each other's lines.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        _LOG.warning("the loss is not noted in %s: %s", file, error.strerror or error)


def read_losses(file: Path, offset: int = 0) -> tuple[list[Loss], int]:
    """What a file holds from a byte on, and where its last whole line ends."""
    if not file.is_file():
        return [], offset
    with file.open("rb") as opened:
        opened.seek(offset)
        text = opened.read()
    whole = text.rpartition(b"\n")[0]
    found = []
    for line in whole.splitlines():
        with contextlib.suppress(ValueError, TypeError):  # a line that a full disk cut
            found.append(Loss(**read_json(line)))
    return found, offset + (len(whole) + 1 if whole else 0)


def merged(losses: Iterable[Loss]) -> list[Loss]:
    """Each range of a stream once: a batch that runs again finds the same messages missing."""
    found: dict[str, list[Loss]] = {}
    for each in sorted(set(losses)):
        before = found.setdefault(each.stream, [])
        if before and before[-1].first and before[-1].last and each.first <= before[-1].last:
            known = before[-1]
            last = max(known.last, each.last)
            messages = min(last - known.first + 1, max(known.messages, each.messages))
            if each.last > known.last:
                messages = min(last - known.first + 1, known.messages + each.messages)
            before[-1] = Loss(each.stream, known.first, last, messages)
        else:
            before.append(each)
    return [loss for each in found.values() for loss in each]
