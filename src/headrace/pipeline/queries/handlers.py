"""A sink that is a function: what it is called with for each batch."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...documents import read_json
from ...errors import ConfigurationError
from ...files import SHARED, write_whole
from ..checkpoints.bindings import Binding, identify
from ..checkpoints.checkpoint import (
    Checkpoint,
    Generation,
    checkpoint_of,
    load_json,
)
from ..checkpoints.numbers import Numbers
from ..model import Consent, Declared, Function, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
