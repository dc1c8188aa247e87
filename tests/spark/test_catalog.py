from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.catalog import with_kept


def schema(comment: str) -> Any:
    return SimpleNamespace(fields=[SimpleNamespace(name="data", metadata={"comment": comment})])


def test_the_options_that_a_table_keeps_are_under_those_of_a_query() -> None:
    kept = schema('options of the table: {"stream": "A", "servers": "x"}')
    assert with_kept({"stream": "B"}, kept) == {"stream": "B", "servers": "x"}


@pytest.mark.parametrize("damage", ['{"stream": "A"', "", "[1]", '{"stream": 1}', "null"])
def test_a_damaged_comment_of_a_table_is_told_in_a_sentence(damage: str) -> None:
    with pytest.raises(ConfigurationError, match="comment of its column 'data', which is damaged"):
        with_kept({}, schema(f"options of the table: {damage}"))
