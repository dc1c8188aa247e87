"""The message that code fails on: its batch is read again by halves, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...api.times import parse_time
from ...errors import HeadraceError
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.links.outages import ServerPatience
from ...spark.options.table import BadRule
from ...spark.reading.gets import MessageGets
from ...spark.tasks.bad_messages import BadMessage, BadMessages
from ..checking.failed_batch import NotSearchedError, Range, failed_batch
from ..checkpoints.checkpoint import Generation, Skipped, read_skipped, skip
from ..checkpoints.fingerprints import noted
from ..graph import quarantined, upstream
from ..model import Declared, Place, Sink
from ..options import source_options
from ..queries.frames import Frames
from ..spark_errors import place_in_code
from .causes import Poison, Verdict, cause_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def first_failing(low: int, high: int, fails: Callable[[int, int], bool]) -> int | None:
    """The first number of ``low`` to ``high`` that fails by itself; None if all pass, or only several fail.

    Args:
        fails: whether a range, both ends included, fails. It is asked as often as a range can be halved.
    """
    if low > high or not fails(low, high):
        return None
    while low < high:
        middle = (low + high) // 2
        if fails(low, middle):
            high = middle
        else:
            low = middle + 1
    return low if fails(low, low) else None


FOUND_MAX: Final = 50
"""So many messages of one batch may be put into quarantine; more are no matter of messages."""
_GET_S: Final = 5.0
_EMPTY: Final = {"startingOffsets": "2", "endingOffsets": "1"}


class Search:
    """Of one query's batch.

    Args:
        is_stopped: whether the run is to end, and so the search.
    """

    def __init__(
        self,
        spark: SparkSession,
        declared: Declared,
        sink: Sink,
        generation: Generation,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._spark = spark.newSession()  # its names of views are its own
        self._declared = declared
        self._sink = sink
        self._generation = generation
        self._is_stopped = is_stopped
        self._name = sink.of or quarantined(declared, sink)[0]
        self._skipped = read_skipped(generation)
        self._last: BaseException | None = None

    def run(self) -> Verdict:
        """Find the messages; those of views that quarantine them become dead letters and are left out."""
        try:
            found = self._find()
        except NotSearchedError as error:
            return Verdict(why=f"which message it was is not known: {error}")
        except HeadraceError as error:
            return Verdict(why=f"the search for the message was broken off: {error}")
        last = found[-1]
        if not self._quarantines(last):
            return Verdict(failed=last)
        try:
            for each in found:
                self._quarantine(each)
        except HeadraceError as error:
            return Verdict(failed=last, why=f"it could not be put into quarantine: {error}")
        return Verdict(tuple(found))

    def _find(self) -> list[Poison]:
        """The messages in order, up to the first one that is to fail the query.

        Raises:
            NotSearchedError: there is none, or too many.
        """
        ranges = failed_batch(self._declared, self._sink, self._generation)
        known = noted(self._generation, self._spark)
        if known is not None and known.state:
            raise NotSearchedError(
                "the query keeps state, so a message alone is not what the query makes of it"
            )
        found: list[Poison] = []
        for each in ranges:
            first = max(each.first, self._first_stored(each))
            while (sequence := self._next(each, first, ranges)) is not None:
                found.append(self._named(each, sequence, ranges))
                if not self._quarantines(found[-1]):
                    return found
                if len(found) > FOUND_MAX:
                    raise NotSearchedError(
                        f"more than {FOUND_MAX} messages of the batch fail, as message {sequence}, so it is "
                        "the code rather than a message; nothing was put into quarantine"
                    )
                first = sequence + 1
        if not found and self._sink.function is not None:
            raise NotSearchedError(
                f"the rows can be made, so it is {self._sink.function.name} that fails, which writes them "
                "and is not tried"
            )
        if not found:
            raise NotSearchedError("each part of the batch passes by itself")
        return found

    def _next(self, of: Range, first: int, ranges: Sequence[Range]) -> int | None:
        def fails(low: int, high: int) -> bool:
            return self._range_fails(of._replace(first=low, last=high), ranges)

        return first_failing(first, of.last, fails)

    def _range_fails(self, of: Range, ranges: Sequence[Range]) -> bool:
        frames = self._frames(of, ranges)
        return self._fails(lambda: frames.of_sink(self._sink))

    def _frames(self, of: Range, ranges: Sequence[Range]) -> Frames:
        bounds: dict[str, dict[str, str]] = {each.source: dict(_EMPTY) for each in ranges}
        bounds[of.source] = {
            "stream": of.stream,
            "startingOffsets": str(of.first),
            "endingOffsets": str(of.last),
        }
        return Frames(
            self._spark, self._declared, self._sink.name, bounds=bounds, skipped=self._skipped
        )

    def _fails(self, rows: Callable[[], DataFrame]) -> bool:
        if self._is_stopped():
            raise NotSearchedError("the run was to end")
        try:
            rows().write.format("noop").mode("overwrite").save()
        except Exception as error:
            cause = cause_of(error)
            if not (cause.is_code or cause.is_crash):
                raise NotSearchedError(f"reading the batch again fails: {cause.text}") from error
            self._last = error
            return True
        return False

    def _named(self, of: Range, sequence: int, ranges: Sequence[Range]) -> Poison:
        """Which part of the query fails on a message: the first one that does by itself."""
        frames = self._frames(of._replace(first=sequence, last=sequence), ranges)
        names = upstream(self._declared, self._name)
        is_crash = self._last is not None and cause_of(self._last).is_crash
        name = next((each for each in names if self._fails(lambda: frames.of(each))), "")  # noqa: B023
        if not name and is_crash:  # a worker that was killed from outside while it had this message
            raise NotSearchedError(f"message {sequence} passes when it is read once more")
        name = name or names[-1]
        view = self._declared.views.get(name)
        text, place, function = str(self._last), self._sink.place, ""
        if view is not None:
            place = view.place
        if code := place_in_code(text):
            place, function = Place(Path(code[0]), code[1]), code[2]
        assert self._last is not None
        message = self._message(of, sequence)
        return Poison(
            source=of.source,
            stream=of.stream,
            sequence=sequence,
            subject=message.subject.decode(errors="backslashreplace"),
            view=name if view is not None else "",
            function=function,
            place=place,
            cause=cause_of(self._last).text,
        )

    def _quarantines(self, poison: Poison) -> bool:
        view = self._declared.views.get(poison.view)
        return view is not None and view.otherwise == "quarantine"

    def _quarantine(self, poison: Poison) -> None:
        """Store its dead letter, then leave it out: a kill in between makes the same letter again."""
        subject = self._declared.views[poison.view].letters
        of = Range(poison.source, poison.stream, poison.sequence, poison.sequence)
        message = self._message(of, poison.sequence)._replace(reason=str(poison))
        link = self._link(poison.source)
        try:
            letters = BadMessages(
                BadRule("deadletter", subject),
                poison.stream,
                lambda: link,
                ServerPatience(_GET_S, "the stream of dead letters"),
            )
            letters.take([message])
        finally:
            link.close()
        skip(self._generation, Skipped(*_kept(poison)))

    def _message(self, of: Range, sequence: int) -> BadMessage:
        link = self._link(of.source)
        try:
            gets = MessageGets(link, of.stream, _GET_S)
            gets.ask(range(sequence, sequence + 1))
            rows = gets.take()
            gets.close()
        finally:
            link.close()
        if not rows.sequences:
            raise NotSearchedError(f"message {sequence} of stream {of.stream!r} is gone")
        return BadMessage(
            sequence,
            parse_time(rows.times[0].decode()),
            rows.subjects[0],
            rows.headers[0] or b"",
            bytes(rows.payloads[0]),
            "",
        )

    def _first_stored(self, of: Range) -> int:
        link = self._link(of.source)
        try:
            return Control(link, of.stream).head()[0].first_seq
        finally:
            link.close()

    def _link(self, source: str) -> Link:
        return Link.open(source_options(self._declared.sources[source]).connection)


def _kept(poison: Poison) -> tuple[Any, ...]:
    return (
        poison.source,
        poison.stream,
        poison.sequence,
        poison.subject,
        poison.view,
        poison.cause,
    )
