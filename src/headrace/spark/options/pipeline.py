"""What a declared pipeline tells its sources about the query they belong to."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from ...documents import read_json
from .table import Option
from .values import RefusedError


class Use(NamedTuple):
    """A source as a part of a pipeline's query.

    Attributes:
        source: its name in the pipeline.
        others: the names of the query's other sources.
        query: pipeline and query.
        run: the same for all sources of one start of the query, and for no other.
        losses: the file in which lost messages are noted.
    """

    source: str = ""
    others: tuple[str, ...] = ()
    query: str = ""
    run: str = ""
    losses: str = ""

    @property
    def text(self) -> str:
        """As the option has it."""
        return json.dumps(self._asdict())


NO_USE: Final = Use()


def _use(value: str) -> Use:
    try:
        raw = read_json(value)
        use = Use(**raw)
        return use._replace(others=tuple(use.others))
    except (ValueError, TypeError):
        raise RefusedError("what headrace pipeline sets; leave it out") from None


# fmt: off
PIPELINE_OPTIONS: Final[tuple[Option, ...]] = (
    Option("pipeline", "",
        "Set by headrace pipeline, for its own sources: which query of which pipeline this is.", _use),
)
# fmt: on
