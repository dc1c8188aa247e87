"""What one client has said and the session has not handled yet.

There are three reasons to keep input: it is not decided yet who the client is (``login``), something it
asked for waits for the disk (``jetstream/tick/turns``), or its turn is over (``budget``) and others
come first. Whichever it is, the input is handled later in the order it came. The shell reads no more while
some is kept, so never more is kept than one read of a socket brings.

Bytes are parsed piece by piece, so that a turn does not end long after its time because a large chunk is
all short lines. What follows large frames is expected to be large, too; there the parser ends the piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ....wire.inprocess import FrameBatch, PublishRun

if TYPE_CHECKING:
    from ....wire import Parser
    from ....wire.frames import Frame
    from ..budget import Budget

PIECE_BYTES: Final = 64 * 1024
SMALL_PIECE_BYTES: Final = 8 * 1024  # of the shortest frames: parsing has its cost per frame
PIECE_FRAMES: Final = 768  # a piece is about so many of the frames before it
LARGE_BYTES: Final = (
    900  # frames of so many each are large: a chunk of them is one piece, and is not copied
)
PARSED_FRAMES: Final = 2048  # so many are parsed at once, or some more where they are alike


class SessionInput:
    """The queue before one session."""

    __slots__ = (
        "_at",
        "_budget",
        "_chunks",
        "_frames",
        "_handle_frames",
        "_handle_piece",
        "_is_large",
        "_parser",
        "_piece",
        "held",
        "kept_bytes",
    )

    def __init__(
        self,
        budget: Budget,
        parser: Parser,
        handle_piece: Callable[[Any], int],
        handle_frames: Callable[[Iterator[Frame]], None],
    ) -> None:
        """``handle_piece`` takes a piece of a chunk, and returns how many frames it completed."""
        self._budget = budget
        self._parser = parser
        parser.frames_max = PARSED_FRAMES
        self._handle_piece = handle_piece
        self._handle_frames = handle_frames
        self._frames: list[Frame] = []  # of a piece that was parsed; they come before all chunks
        self._chunks: deque[Any] = deque()
        self._at = 0  # how far the first chunk was handled
        self._piece = SMALL_PIECE_BYTES
        self._is_large = False  # whether the frames of the last piece were
        self.held = 0
        """How many reasons there are to wait, beside the turn."""
        self.kept_bytes = 0
        """Of the chunks that wait; the first may be handled in part."""

    @property
    def is_kept(self) -> bool:
        """Whether something waits to be handled."""
        return bool(self._chunks or self._frames or self._parser.is_behind)

    def add(self, chunk: Any) -> None:
        """Handle a chunk after everything before it, as far as there is time."""
        if self.is_kept or self.held or self._budget.spent:
            self._chunks.append(chunk)
            self.kept_bytes += len(chunk)
        elif len(chunk) <= self._piece or (self._is_large and isinstance(chunk, bytes)):
            self._hear(chunk)
            if self._parser.is_behind:
                self.go_on()
        else:
            self._chunks.append(chunk)
            self.kept_bytes = len(chunk)
            self.go_on()

    def go_on(self) -> None:
        """Handle what is kept, until the turn is over or there is a reason to wait."""
        budget = self._budget
        while not (budget.spent or self.held):
            if self._frames:
                frames, self._frames = self._frames, []
                self._handle_frames(iter(frames))
            elif self._parser.is_behind:
                self._hear(b"")
            elif self._chunks:
                self._hear(self._next_piece())
            else:
                break

    def keep(self, frames: Iterable[Frame]) -> None:
        """Put aside what is left of a piece that is parsed."""
        self._frames += frames

    def end(self) -> None:
        """Keep and handle nothing more, and let the session go."""
        self._frames.clear()
        self._chunks.clear()
        self._parser.give_up()
        self.kept_bytes = 0
        self._handle_piece, self._handle_frames = _ignore_piece, _ignore

    def _hear(self, piece: Any) -> None:
        count = self._handle_piece(piece)
        if len(piece) >= SMALL_PIECE_BYTES:  # a CONNECT tells nothing of what follows
            frame_bytes = len(piece) // max(count, 1)
            self._piece = min(max(frame_bytes * PIECE_FRAMES, SMALL_PIECE_BYTES), PIECE_BYTES)
        self._is_large = count * LARGE_BYTES <= len(piece)

    def _next_piece(self) -> Any:
        chunk, at = self._chunks[0], self._at
        piece: Any
        if isinstance(chunk, FrameBatch):
            end = at + PIECE_FRAMES
            piece, is_last = FrameBatch(chunk.frames[at:end], 0), end >= len(chunk.frames)
        elif isinstance(chunk, PublishRun):
            end, piece, is_last = 0, chunk, True
        else:
            end = at + self._piece
            is_last = end >= len(chunk)
            piece = memoryview(chunk)[at:end] if at or not is_last else chunk
        if is_last:
            self._chunks.popleft()
            self.kept_bytes -= len(chunk)
            self._at = 0
        else:
            self._at = end
        return piece


def _ignore(_frames: Iterator[Frame]) -> None:
    """Whatever the client of a session that has ended may say."""


def _ignore_piece(_piece: Any) -> int:
    return 0
