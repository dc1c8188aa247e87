"""A pipeline in a test of your own: rows in, rows out, without a server. See ``docs/testing.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TestedPipeline"]


class TestedPipeline:
    """A pipeline whose sources are given rows. Made by the fixture ``headrace_pipeline``.

    Args:
        file: the pipeline's file.
        profile: whose values take precedence.

    Raises:
        PipelineError: the file has mistakes.
    """

    __test__ = False  # no class of tests, for pytest

    def __init__(self, spark: SparkSession, file: Path | str, profile: str = "") -> None:
        from ..pipeline.declaring.reading import read
        from ..pipeline.testing.trial import Trial

        self._declared = read(Path(file), profile)
        self._trial = Trial(self._declared, spark)

    def rows(
        self, name: str, given: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> list[dict[str, Any]]:
        """The rows that a view or a sink gets, as values of JSON: moments are RFC 3339, in UTC.

        Args:
            name: of a view or a sink; of two of one name the sink is meant.
            given: rows by source. Those of a stream are messages: ``data`` (a text, or anything that is
                JSON), ``subject``, ``headers``, ``sequence``, ``timestamp``.

        Raises:
            ConfigurationError: the pipeline has no such part.
            PipelineError: Spark refuses a part of it, or a row fails where it must not.
        """
        from ..errors import ConfigurationError
        from ..pipeline.model import did_you_mean
        from ..pipeline.testing.given import given as placed

        declared = self._declared
        known = [*declared.sinks, *declared.views]
        if name not in known:
            raise ConfigurationError(f"no sink or view {name!r}{did_you_mean(name, known)}")
        for source in given:
            if source not in declared.sources:
                hint = did_you_mean(source, declared.sources)
                raise ConfigurationError(f"no source {source!r}{hint}")
        sources = {each: placed(rows, declared.sources[each].place) for each, rows in given.items()}
        kind = "sinks" if name in declared.sinks else "views"
        return [dict(row) for row in self._trial.rows(sources, kind, name).rows]

    def check(self, *cases: str) -> None:
        """Run the tests in files beside the pipeline, as ``headrace pipeline test`` does; default: all.

        Raises:
            AssertionError: rows are not as expected; it says which.
            PipelineError: there are no tests, or something is wrong with their files.
        """
        from ..pipeline.testing.cases import read_cases

        said = []
        for case in read_cases(self._declared, cases):
            result = self._trial.check(case)
            said += [str(problem) for problem in result.problems]
            for each in result.checked:
                if each.difference:
                    said.append(f"{each.file}: {each.difference}")
                    said += [] if each.difference.columns else each.difference.lines()
        if said:
            raise AssertionError("\n".join(said))
