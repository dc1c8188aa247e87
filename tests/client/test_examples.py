"""The examples run as they stand and print what they say."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import guides
import peers

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.peer


def main_of(name: str) -> Callable[[str], Any]:
    main: Callable[[str], Any] = guides.load(EXAMPLES / f"{name}.py").main
    return main


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("messages", ["greet.joe hello en", "2121", "nobody listens on 'nobody.home'"]),
        ("streams", ["stored as 1", "acknowledged 10000", "fetched 1000", "left 0"]),
        ("blocking", ["sum 499500"]),
        ("exactly_once", ["booked 100 payments of 4950"]),
    ],
)
def test_an_example_does_what_it_says(
    name: str,
    printed: list[str],
    reference_server: peers.ServerProcess,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main = main_of(name)
    if inspect.iscoroutinefunction(main):
        asyncio.run(main(reference_server.url))
    else:
        main(reference_server.url)
    output = capsys.readouterr().out
    for text in printed:
        assert text in output
