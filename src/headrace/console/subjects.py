"""The subjects of a stream, some at a time, however many there are.

The server counts by subject in pages of its own, 100,000 a page. One page at most is asked for each time,
and of a large stream none without a pattern: its first messages tell some subjects for less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..api.streams import StreamInfo, StreamInfoRequest
from ..client.jetstream.stored_message import if_found
from ..client.jetstream.stream import Stream
from ..client.jetstream_context import JetStream
from ..client.seam import api_of
from ..limits import SUBJECTS_PER_PAGE

SHOWN: Final = 500
LISTED_MAX: Final = 20_000
"""Subjects in a stream that are listed without a pattern; with more, the first are shown."""

FIRST_BYTES: Final = 1024 * 1024
SINGLE_MAX: Final = 50  # messages, where each is a question of its own


class _Page(StreamInfo, frozen=True, kw_only=True):
    """An answer of STREAM.INFO with the number of subjects that match."""

    total: int = 0


@dataclass(frozen=True, slots=True)
class Subjects:
    """Some subjects of a stream.

    Attributes:
        info: the stream.
        counts: messages by subject, in the order they are to be shown. None for a count: it was not asked.
        matching: how many match; None if that was not asked.
        offset: how many come before them.
    """

    info: StreamInfo
    counts: dict[str, int | None]
    matching: int | None
    offset: int

    @property
    def more(self) -> bool:
        """Whether further ones match."""
        return self.matching is None or self.offset + len(self.counts) < self.matching


async def subjects_of(
    js: JetStream,
    name: str,
    pattern: str,
    offset: int = 0,
    *,
    every: str = ">",
    largest: bool = False,
) -> Subjects:
    """Read up to ``SHOWN`` subjects that match, from the ``offset``-th on.

    Args:
        every: the pattern that all match; an empty ``pattern`` means this one.
        largest: those with most messages first, where all of them are in one page of the server.
    """
    if not pattern or pattern == every:
        info = await (await js.stream(name)).info()
        if info.state.num_subjects > LISTED_MAX and not offset:
            return await _first(js, info, every)
    pattern = pattern or every
    # The server puts them in order where it gives a part of them.
    page = await _page(js, name, pattern, 0 if largest else offset)
    begin = 0 if largest else offset
    if largest and offset and page.total > SUBJECTS_PER_PAGE:
        page, begin = await _page(js, name, pattern, offset), offset
    found = sorted(page.state.subjects.items())
    if largest and page.total <= SUBJECTS_PER_PAGE:
        found.sort(key=lambda each: -each[1])
    return Subjects(page, dict(found[offset - begin :][:SHOWN]), page.total, offset)


async def _page(js: JetStream, name: str, pattern: str, offset: int) -> _Page:
    request = StreamInfoRequest(subjects_filter=pattern, offset=offset)
    return await api_of(js).call(_Page, ("STREAM", "INFO", name), request, repeatable=True)


async def _first(js: JetStream, info: StreamInfo, every: str) -> Subjects:
    """The subjects of a stream's first messages: many by one question if it allows direct gets, or a few."""
    stream = Stream(api_of(js), info.config.name)
    begin = max(1, info.state.first_seq)
    counts: dict[str, int | None] = {}
    if info.config.allow_direct:
        batch = await stream.get_batch(SHOWN, subject=every, sequence=begin, max_bytes=FIRST_BYTES)
        counts = dict.fromkeys(each.subject for each in batch.messages)
    for _ in range(0 if info.config.allow_direct else SINGLE_MAX):
        message = await if_found(stream.get_next_message(every, begin))
        if message is None:
            break
        counts[message.subject] = None
        begin = message.sequence + 1
    return Subjects(info, counts, None, 0)
