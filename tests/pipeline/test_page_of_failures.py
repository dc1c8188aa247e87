"""The page about failures (``docs/how-to/when-a-pipeline-fails.md``): commands, files, statuses as typed.

The commands of the pages about changes, and for those who come from Kafka, are typed, too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from headrace.cli import INTERRUPTED
from headrace.cli.pipeline.file import MISTAKEN
from headrace.cli.pipeline.screen import Lines
from headrace.cli.root import root
from headrace.cli.shared.errors import FAILED, UNREACHABLE, USAGE
from headrace.cli.shared.verbs import LazyGroup
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.supervising import Outage
from headrace.spark.options.source import ACCEPTED as SOURCE_OPTIONS
from headrace.spark.sink.options import ACCEPTED as SINK_OPTIONS

from .conftest import ORDERS

HOW_TO = Path(__file__).parents[2] / "docs/how-to"
PAGE = (HOW_TO / "when-a-pipeline-fails.md").read_text()


def blocks(kind: str, page: str = PAGE) -> list[str]:
    found = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", page)
    return [text for each, text in found if each == kind]


@pytest.mark.parametrize(
    ("page", "count"),
    [("when-a-pipeline-fails.md", 4), ("changing-a-pipeline.md", 5), ("from-kafka.md", 3)],
)
def test_every_command_of_the_page_is_one(
    page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (HOW_TO / page).read_text()
    lines = [line for block in blocks("", text) for line in block.splitlines()]
    assert len(lines) == count
    for line in lines:
        program, group, verb, *words = shlex.split(line, comments=True)
        assert (program, group) == ("headrace", "pipeline")
        found = root.get_command(click.Context(root), group)
        assert isinstance(found, LazyGroup)
        command = found.get_command(click.Context(found), verb)
        assert command is not None
        command.make_context(verb, words)


def test_what_the_page_writes_into_a_file_is_read(write: Callable[..., Path]) -> None:
    settings, view = blocks("toml")
    write("def tenfold(orders):\n    return orders\n", "views.py")
    text = ORDERS.replace("[sources", f"{settings}\n[sources", 1) + view
    declared = read(write(text.replace('from = "orders"', 'from = "tenfold"')))
    assert declared.restart is not None
    assert (declared.restart.attempts, declared.restart.within_s) == (10, 3600.0)
    assert declared.wait_for_server_s == 900.0
    assert declared.views["tenfold"].otherwise == "quarantine"


def test_the_statuses_and_events_of_the_page_are_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    statuses = re.findall(r"(?m)^\| (\d+) \|", PAGE)
    wanted = [0, FAILED, USAGE, UNREACHABLE, MISTAKEN, INTERRUPTED]
    assert list(map(int, statuses)) == wanted
    lines = Lines()
    lines.away("out", Outage("nats://a", 5.0, 1.0))
    lines.back("out")
    lines.restarting("out", 1, "it is lost", 1.0)
    printed = re.findall(r'"event": ?"(\w+)"', capsys.readouterr().out)
    assert printed == ["waiting", "back", "restarting"]
    assert all(f"`{event}`" in PAGE for event in [*printed, "poison"])


def test_what_the_page_for_those_from_kafka_names_is_there() -> None:
    page = (HOW_TO / "from-kafka.md").read_text()
    options = {each.name for table in (SOURCE_OPTIONS, SINK_OPTIONS) for each in table.options}
    named = {"includeMarkers", "onBadMessage", "onBadRow", "failOnDataLoss", "key", "bucket"}
    assert named <= options
    assert all(f"`{each}" in page for each in named)
    (restart,) = re.findall(r"`(restart = \{.*?\})`", page)
    assert restart in PAGE
    for word in ("upsert", "compacted", "control records", "restart strategy", "savepoint", "late"):
        assert f"| {word}" in page, word
