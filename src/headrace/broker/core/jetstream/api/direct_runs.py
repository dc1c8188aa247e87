"""Direct gets of last messages by subject that came in one chunk, answered together.

So ask who reads many keys of a bucket at once. Each answer is, byte for byte, the one ``direct_get`` would
give; what is out of the ordinary is left to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .....errors import StoreError
from .....subjects import is_valid_subject
from .....wire.frames import Frame
from ...ports.bus import Origin
from ..context import Context
from ..stream.stream import Stream
from .direct_get import NOT_FOUND, headers_of
from .ports import Assets

DIRECT: Final = b"$JS.API.DIRECT.GET."
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
        publish = self._bus.publish
        for publication, (block, payload) in zip(publishes, found, strict=False):
            publish(publication[2], b"", block, payload)
        self.answered += len(found)
        return publishes[len(found) :]


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
    store, durable, left = stream.store, stream.store.durable_seq, RUN_BYTES
    answers: list[tuple[bytes, bytes]] = []
    for subject in subjects:
        state = store.subject(subject)
        if state is None:
            if not is_valid_subject(subject):
                break
            answers.append((NOT_FOUND, b""))
            continue
        message = store.get(state.last_seq) if state.last_seq <= durable else None
        if message is None:
            break
        left -= len(message.headers) + len(message.payload)
        if left < 0:
            break
        answers.append((headers_of(stream, message), message.payload))
    return answers
