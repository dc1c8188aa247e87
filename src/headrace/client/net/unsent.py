"""What a connection that ends could not send: how many messages, and which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...errors import UnsentError
from ...wire.frames import PUB, Frame
from ...wire.inprocess import Chunk, FrameBatch, PublishRun
from ...wire.parser import Parser

SUBJECTS_SHOWN_MAX: Final = 3
_ACK_PREFIX: Final = b"$JS.ACK."


def unsent_error(chunks: Sequence[Chunk], why: str) -> UnsentError | None:
    """What says that these commands were not sent, or None if no message is among them.

    Acknowledgements are counted by themselves: their messages are delivered again.
    """
    subjects = [frame[1] for chunk in chunks for frame in _frames(chunk) if frame[0] == PUB]
    messages = [subject for subject in subjects if not subject.startswith(_ACK_PREFIX)]
    if not subjects:
        return None
    acks = len(subjects) - len(messages)
    first = tuple(each.decode() for each in dict.fromkeys(messages))[:SUBJECTS_SHOWN_MAX]
    said = []
    if messages:
        shown = ", ".join(map(repr, first))
        more = len(set(messages)) - len(first)
        said.append(
            f"{len(messages)} message(s) on {shown}" + (f" and {more} more" if more else "")
        )
    if acks:
        said.append(f"{acks} acknowledgement(s)")
    return UnsentError(f"{why}: not sent are {' and '.join(said)}", len(messages), first)


def _frames(chunk: Chunk) -> Iterator[Frame]:
    if isinstance(chunk, FrameBatch | PublishRun):
        yield from chunk.frames
    else:
        size = len(chunk)  # it is our own output, of whatever size
        yield from Parser.for_server(max_payload=size, max_control_line=size).feed(chunk)
