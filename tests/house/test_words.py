"""Tables, curves and metrics say the glossary's words: waiting, unacknowledged, lag."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"
PAGES = SRC / "console" / "static" / "pages"
OTHERS = re.compile(r"\b(?:pending|behind|outstanding|unprocessed|backlog)\b", re.IGNORECASE)
"""What others say for the glossary's words; each meant one thing in one place, and another in the next."""

_TABLE = re.compile(r"\bTable\(\s*\((.*?)\)", re.DOTALL)
_TEXT = re.compile(r"\"([^\"]+)\"")
_TITLE = re.compile(r"\btitle[:=]\s*(?:\$\{)?[\"`]([^\"`]+)[\"`]")
_TILE = re.compile(r"\[\"([A-Z][^\"]*)\", (?:count|rate|bytes)\(([^)]*)\)")
_COLUMN = re.compile(r"\{ id: \"(\w+)\", title: \"([^\"]+)\"")


def headings() -> dict[str, list[str]]:
    """Of the tables of the command line, and of the tables, tiles and curves of the console."""
    found = {}
    for path in (SRC / "cli").rglob("*.py"):
        rows = _TABLE.findall(path.read_text())
        found[path.relative_to(SRC).as_posix()] = [
            text for row in rows for text in _TEXT.findall(row)
        ]
    for path in PAGES.glob("*.js"):
        text = path.read_text()
        found[path.name] = [
            *_TITLE.findall(text),
            *(title for title, _ in _TILE.findall(text)),
        ]
    return found


def helps() -> list[str]:
    """What each metric is, as the page of metrics has it."""
    rows = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    return [row.split("|")[3] for row in rows if row.startswith("| `headrace_")]


def test_no_heading_says_what_the_glossary_calls_otherwise() -> None:
    found = headings()
    assert sum(map(len, found.values())) > 200
    wrong = {
        place: other
        for place, texts in found.items()
        if (other := [text for text in texts if OTHERS.search(text)])
    }
    assert wrong == {}


def test_no_metric_says_it_either() -> None:
    found = helps()
    assert len(found) > 70
    assert [text for text in found if OTHERS.search(text)] == []


def test_the_words_are_those_of_the_glossary() -> None:
    words = re.findall(
        r"^\| ([\w -]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
    assert {"waiting", "unacknowledged", "lag"} <= set(words)


def test_each_number_of_a_consumer_has_one_word() -> None:
    columns = dict(_COLUMN.findall((PAGES / "consumers.js").read_text()))
    assert (columns["pending"], columns["ack_pending"]) == ("Waiting", "Unacknowledged")
    for page in ("consumers.js", "overview.js"):
        tiles = {
            what.split(".")[-1]: title for title, what in _TILE.findall((PAGES / page).read_text())
        }
        assert (tiles["pending"], tiles["ack_pending"]) == ("Waiting", "Unacknowledged")
    listed = (SRC / "cli" / "consumer" / "ls.py").read_text()
    shown = (SRC / "cli" / "consumer" / "info.py").read_text()
    assert '"WAITING", "UNACKED"' in listed
    assert '("Waiting", f"{found.num_pending:,}")' in shown
    assert '("Unacknowledged", f"{found.num_ack_pending:,}")' in shown
