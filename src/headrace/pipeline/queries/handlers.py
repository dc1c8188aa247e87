"""Sinks that Spark calls for each batch: functions, and streams in output modes that it does not give
them.
"""

from __future__ import annotations

import fcntl
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...documents import read_json
from ...errors import ConfigurationError
from ...files import SHARED, write_whole
from ...spark.sink.options import parse_sink_options
from ..checkpoints.checkpoint import Checkpoint, Generation, checkpoint_of, load_json
from ..checkpoints.folders import LocalFolder
from ..checkpoints.results_folder import OF_CHECKPOINT, Binding, identify, newest, read_binding
from ..model import Consent, Declared, Function, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_FILE: Final = "numbers.json"


class Numbers:
    """The ledger of a query. ``clock``: seconds since the epoch."""

    def __init__(self, checkpoint: Checkpoint, clock: Callable[[], float] = time.time) -> None:
        assert checkpoint.folder is not None
        self._checkpoint = checkpoint
        self._file = checkpoint.folder / _FILE
        self._clock = clock

    def open(self, *, again: bool = False) -> None:
        """Begin the ledger if there is none, before a query starts.

        A ledger that was lost, or a query that is begun ``again`` after its checkpoint was, goes on at the
        seconds since the epoch: no query has had more batches than that.
        """
        with self._locked() as raw:
            if "next" not in raw:
                raw |= self._adopted()
            if again:
                raw["next"] = max(raw["next"], int(self._clock()))

    def check(self, run: str, generation: Generation) -> None:
        """Go on at the seconds since the epoch where the ledger is older than the checkpoint, or another's:
        it does not know a batch that is finished."""
        finished = newest(LocalFolder(Path(generation.path)), "commits")
        with self._locked() as raw:
            known = raw["runs"].get(run) or raw["old"].get(str(generation.number))
            if finished >= 0 and (known is None or known["batch"] < finished):
                raw["next"] = max(raw["next"], int(self._clock()))

    def number_of(self, run: str, batch: int, generation: int = 0) -> int:
        """The number of a batch of a run. ``generation``: of a query; 0 for a replay."""
        with self._locked() as raw:
            given = raw["runs"].get(run) or raw["old"].pop(str(generation), None)
            if given is None or given["batch"] != batch:
                given = {"batch": batch, "number": raw["next"]}
                raw["next"] += 1
            raw["runs"][run] = given
            return int(given["number"])

    def _adopted(self) -> dict[str, Any]:
        """What a query has used that ran before there was a ledger: Spark's numbers, in each generation."""
        used, old, is_lost = -1, {}, False
        for each in self._checkpoint.generations():
            folder = LocalFolder(Path(each.path))
            planned = newest(folder, "offsets")
            used = max(used, planned)
            if planned >= 0:
                old[str(each.number)] = {"batch": planned, "number": planned}
                is_lost = is_lost or read_binding(folder, OF_CHECKPOINT) is not None
        if is_lost:
            return {"next": max(used + 1, int(self._clock())), "runs": {}, "old": {}}
        return {"next": used + 1, "runs": {}, "old": old}

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        """The ledger's content, written down when it has changed; a replay may run beside the query."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            raw = load_json(self._file)
            before = json.dumps(raw)
            yield raw
            if (text := json.dumps(raw)) != before:
                write_whole(self._file, text, SHARED)


_UNSORTABLE = ("map", "variant")


def numbered_write(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Writes a batch with its number, for ``foreachBatch``. Raises ConfigurationError: an option is wrong."""
    parsed = parse_sink_options(options, streaming=True)
    given = dict(options)
    # Rows of an aggregation come in no order of their own, and have to come in the same one when a batch
    # runs again. A key's value is found by the key.
    is_sorted = parsed.delivery != "atleastonce" and not parsed.key
    has_number = bool(parsed.sink_id)

    def write(batch: DataFrame, number: int) -> None:
        if is_sorted:
            kinds = {each.name: each.dataType.simpleString() for each in batch.schema.fields}
            names = [n for n, kind in kinds.items() if not any(map(kind.__contains__, _UNSORTABLE))]
            batch = batch.sortWithinPartitions(*[batch[f"`{name}`"] for name in names])
        writer: Any = batch.write.format("jetstream").mode("append").options(**given)
        if has_number:
            writer = writer.option("batchId", number)
        writer.save()

    return write


def refuse_older_values(sink: Sink, into: Sink) -> None:
    """Raise ConfigurationError if a replay of ``sink`` would put old values over the latest ones."""
    if into is sink and into.format == "jetstream" and "key" in map(str.lower, into.options):
        raise ConfigurationError(
            f"{sink.place}: sink {sink.name!r} keeps the latest value of each key, and a replay of a range "
            "would put older ones over them; replay --into a sink with another bucket or stream, or begin "
            "the query again with reset"
        )


Call = Callable[["DataFrame", int], None]
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def takes_run(function: Function) -> bool:
    """Whether a function has a third parameter, the identity of the run."""
    return len(function.parameters) > 2


def handler_of_query(
    declared: Declared,
    sink: Sink,
    generation: Generation,
    function: Callable[..., Any],
    spark: SparkSession,
    consent: Consent,
) -> Call:
    """What a query of Spark calls for each batch."""
    assert sink.function is not None
    checkpoint = checkpoint_of(declared, sink.name)
    numbers = Numbers(checkpoint) if checkpoint.folder is not None else None
    if numbers is not None:
        numbers.open(again=consent.again and generation.is_new)
    run = run_of(identify(declared, sink.name, generation, spark))
    if numbers is not None:
        numbers.check(run, generation)
    if takes_run(sink.function):
        return lambda frame, batch: function(frame, batch, run)
    if numbers is None:
        return function
    ledger, number = numbers, generation.number
    return lambda frame, batch: function(frame, ledger.number_of(run, batch, number))


def run_of(identity: Binding) -> str:
    """The identity of a query's checkpoint as one word: it fits a column, a key and a file's name."""
    return f"{identity.pipeline}-{identity.query}-{identity.generation}-{identity.id}"


class Replay:
    """A replay into a function, by its name: it may be run again until it is done, over the same range.

    Raises:
        ConfigurationError: there was one of this name, which is done or has another range.
    """

    def __init__(self, declared: Declared, sink: Sink, name: str) -> None:
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"the name of a replay is {name!r}; accepted: letters, digits, '-', '_' and '.'"
            )
        self._checkpoint: Checkpoint = checkpoint_of(declared, sink.name)
        self._name = name
        self._front = f"{declared.name}-{sink.name}-replay-{name}"
        folder = self._checkpoint.folder
        self._file = folder / f"replay-{name}.json" if folder is not None else None
        self._noted = load_json(self._file) if self._file is not None else {}
        if self._noted.get("done"):
            raise ConfigurationError(
                f"there was a replay {name!r} of query {sink.name!r}; choose another name"
            )

    def bounds(
        self, asked: Mapping[str, Any], fixed: Callable[[], Mapping[str, Any]]
    ) -> dict[str, dict[str, str]]:
        """The range of each source. An end that was ``latest`` stays where it was at the first attempt.

        Args:
            asked: the range as it was asked for.
            fixed: the same, with the ends of streams as they are now.
        """
        asked = read_json(json.dumps(asked))
        if self._noted and self._noted["asked"] != asked:
            raise ConfigurationError(
                f"a replay {self._name!r} of this query was begun over another range; choose another name"
            )
        if not self._noted:
            self._noted = {"id": secrets.token_hex(8), "asked": asked, "bounds": dict(fixed())}
            self._note()
        return dict(self._noted["bounds"])

    def call(self, function: Function, loaded: Callable[..., Any], frame: DataFrame) -> None:
        """Hand the rows to the function, as one batch."""
        run = f"{self._front}-{self._noted['id']}" if self._file is not None else self._front
        if takes_run(function):
            loaded(frame, 0, run)
        elif self._file is None:
            raise ConfigurationError(
                f"{function.place}: below a URL a replay has no number of its own; give {function.name} a "
                "third parameter, the run, by which it tells a replay from the query"
            )
        else:
            numbers = Numbers(self._checkpoint)
            numbers.open()
            loaded(frame, numbers.number_of(run, 0))
        self._noted["done"] = True
        self._note()

    def _note(self) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(self._noted), SHARED)
