from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_a_number_is_explained_without_a_server(headrace: Run) -> None:
    (found,) = headrace("errors", "lookup", "10059", "--json").told
    assert (found["code"], found["description"]) == (404, "stream not found")
    assert found["next_steps"][0].startswith("headrace stream ls ")
    assert "stream not found" in headrace("errors", "lookup", "10059").out
    done = headrace("errors", "lookup", "1")
    assert (done.status, "no error has the number 1" in done.err) == (1, True)


def test_errors_are_found_by_their_text(headrace: Run) -> None:
    lines = headrace("errors", "ls", "OVERLAP").lines
    assert any("10065" in line for line in lines)
    assert len(headrace("errors", "ls").lines) > 100 > len(lines)
    assert headrace("errors", "ls", "(").status == 2
