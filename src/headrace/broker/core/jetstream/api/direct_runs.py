"""Direct gets of last messages by subject that came in one chunk, answered together.

So ask who reads many keys of a bucket at once. Each answer is, byte for byte, the one ``direct_get`` would
give; what is out of the ordinary is left to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .....api.times import format_time
from .....errors import StoreError
from .....subjects import is_valid_subject
from .....wire.frames import Frame
from ...ports.bus import Origin, Target
from ...server_headers import with_place
from ..context import Context
from ..stream.stream import Stream
from .direct_get import DIRECT, NOT_FOUND, PLACE
from .ports import Assets

RUN_MIN: Final = 4  # fewer are not worth it
RUN_MAX: Final = 512  # what is beyond is answered one by one, in turns
RUN_BYTES: Final = 1024 * 1024


class DirectRuns:
    """Takes publishes to the API of one account; those it does not answer it gives back.

    Attributes:
        answered: how many requests it has answered.
    """

    def __init__(self, context: Context, assets: Assets) -> None:
        self._bus = context.bus
        self._assets = assets
        self.answered = 0

    def take(self, publishes: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Answer the requests for last messages at the front; returns what is left."""
        name = publishes[0][1][len(DIRECT) :].partition(b".")[0]
        stream = self._assets.streams.get(name.decode(errors="replace"))
        if origin is None or stream is None or not stream.config.allow_direct:
            return publishes
        asked = _asked(publishes[:RUN_MAX], b"%b%b." % (DIRECT, name))
        if len(asked) < RUN_MIN:
            return publishes
        try:
            stream.expire()
            if stream.removing.is_behind:
                return publishes  # some may have to leave before they are read
            found = _answers(stream, asked)
        except StoreError:
            return publishes
        self._send([frame[2] for frame in publishes[: len(found)]], found)
        self.answered += len(found)
        return publishes[len(found) :]

    def _send(self, replies: Sequence[bytes], found: Sequence[tuple[bytes, bytes]]) -> None:
        """Send each its answer: those for one receiver that stand together in one go."""
        resolve, same, target = self._bus.resolve, b"", None
        batches: list[tuple[Target, list[tuple[bytes, bytes, bytes, bytes]]]] = []
        for reply, (block, payload) in zip(replies, found, strict=True):
            if reply != same:
                same, target = reply, resolve(reply)
            if target is not None:
                if not batches or batches[-1][0] is not target:
                    batches.append((target, []))
                batches[-1][1].append((reply, b"", block, payload))
        for target, messages in batches:
            target.send_many(messages)


def _asked(publishes: Sequence[Frame], start: bytes) -> list[bytes]:
    """The subjects whose last messages the requests at the front are for."""
    subjects: list[bytes] = []
    cut = len(start)
    for _op, subject, reply, headers, payload in publishes:
        if payload or headers or not (reply and subject.startswith(start) and subject.isascii()):
            break
        subjects.append(subject[cut:])
    return subjects


def _answers(stream: Stream, subjects: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Headers and payloads of the answers, up to the first that has to be looked at by itself."""
    store, left = stream.store, RUN_BYTES
    durable, lasts = store.durable_seq, store.last_of_each(subjects)
    rows = store.rows_at(lasts, RUN_BYTES)
    place = PLACE.replace(b"%b", stream.name.encode().replace(b"%", b"%%"), 1)
    bare = with_place(b"", place)
    answers: list[tuple[bytes, bytes]] = []
    for subject, sequence in zip(subjects, lasts, strict=True):
        if not sequence:
            if not is_valid_subject(subject):
                break
            answers.append((NOT_FOUND, b""))
            continue
        row = rows.get(sequence) if sequence <= durable else None
        if row is None:
            break
        _sequence, name, headers, payload, time_ns = row
        left -= len(headers) + len(payload)
        if left < 0:
            break
        said = name, sequence, format_time(time_ns).encode()
        answers.append(
            (with_place(headers, place % said, PLACE) if headers else bare % said, payload)
        )
    return answers
