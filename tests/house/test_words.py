"""Tables, curves, options and metrics say the glossary's words: waiting, unacknowledged, lag."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from labels import Labelled, headed, helps, keyed, measured, shown

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"
PAGES = SRC / "console" / "static" / "pages"
METRICS = sorted(
    path for path in SRC.rglob("*.py") if re.search(r"\bMetric\(\s*\"", path.read_text())
)
OTHERS = re.compile(
    r"\b(?:pending|behind|outstanding|unprocessed|backlog|messages? left)\b|without an answer",
    re.IGNORECASE,
)
"""What others say for the glossary's words; each meant one thing in one place, and another in the next."""


class Quantity(NamedTuple):
    """What the source calls a number, and the words that a reader may see for it."""

    heading: frozenset[str]
    meaning: str
    key: frozenset[str]


def _quantity(headings: str, meaning: str, keys: str) -> Quantity:
    return Quantity(frozenset(headings.split("|")), meaning, frozenset(keys.split()))


WAITING = _quantity("waiting", r"\bwait", "num_pending waiting")
UNACKNOWLEDGED = _quantity(
    "unacknowledged|unacked",
    r"unacknowledged|not (?:yet )?acknowledged",
    "num_ack_pending ack_pending unacknowledged",
)
PULLS = _quantity("pulls|waiting pulls", r"\bpull", "num_waiting")
LAG = _quantity("lag", r"\blag\b|not handled|not copied|not (?:yet )?committed", "lag")
QUANTITIES = {
    "num_pending": WAITING,
    "num_ack_pending": UNACKNOWLEDGED,
    "ack_pending": UNACKNOWLEDGED,
    "unacknowledged": UNACKNOWLEDGED,
    "num_waiting": PULLS,
    "lag": LAG,
    "source_lag": LAG._replace(heading=frozenset(("lag", "at the source"))),
    "behind": LAG,
    "messages_behind": LAG,
    "seconds_behind": LAG._replace(heading=frozenset(("lag", "lag in seconds"))),
}
"""By the attribute or the name on the wire."""
HERE = {
    "console": {"pending": WAITING, "waiting": PULLS},
    "console groups.js": {"waiting": LAG},  # PartitionLag.waiting: not handled yet
    "pipeline": {"waiting": LAG._replace(key=frozenset(("lag", "waiting")))},
    "group": {"waiting": LAG},
    "worker": {"lag": WAITING},  # headrace_worker_lag_messages: the name of a metric stays
}
"""Names that mean a number in some places alone. ``waiting`` is also a key of public documents."""
HEADED = (*QUANTITIES.values(), *(each for names in HERE.values() for each in names.values()))
WORDS = frozenset(word for each in HEADED for word in each.heading)


def mislabelled(found: Iterator[Labelled], here: dict[str, Quantity] | None = None) -> list[str]:
    """Headings that say another word than the glossary's, or a word of it for another number."""
    known = QUANTITIES | (here or {})
    wrong = []
    for text, names in found:
        said = text.lower()
        numbers = [known[name] for name in names if name in known]
        if OTHERS.search(text):
            wrong.append(f"{text!r} is no word of the glossary")
        elif (said in WORDS or len(names) == 1) and (
            numbers and not any(said in each.heading for each in numbers)
        ):
            wrong.append(f"{text!r} stands for {', '.join(sorted(names & set(known)))}")
    return [*dict.fromkeys(wrong)]


def misnamed(found: Iterator[Labelled], here: dict[str, Quantity] | None = None) -> list[str]:
    """Keys of documents that name another number than they have."""
    known = QUANTITIES | (here or {})
    return [
        f"{text!r} has {name}"
        for text, names in found
        for name in names
        if name in known and text not in known[name].key | {name}
    ]


def misexplained(found: Iterator[Labelled], here: dict[str, Quantity] | None = None) -> list[str]:
    """Metrics whose meaning does not say the glossary's word for what they count."""
    known = QUANTITIES | (here or {})
    wrong = []
    for text, names in found:
        numbers = [known[name] for name in names if name in known]
        if OTHERS.search(text):
            wrong.append(f"{text!r} says no word of the glossary")
        elif len(numbers) == 1 and not re.search(numbers[0].meaning, text, re.IGNORECASE):
            wrong.append(f"{text!r} is of {', '.join(sorted(names & set(known)))}")
    return wrong


def misadvised(found: Iterator[str]) -> list[str]:
    """Options that say what others say; "behind" is also a place there."""
    return [
        text
        for text in found
        if any(each.group().lower() != "behind" for each in OTHERS.finditer(text))
    ]


def _here(path: Path) -> dict[str, Quantity]:
    if path.suffix == ".js":
        return HERE["console"] | HERE.get(f"console {path.name}", {})
    return HERE.get(path.parent.name, {})


CLI = sorted((SRC / "cli").rglob("*.py"))


def test_no_table_of_the_command_line_says_what_the_glossary_calls_otherwise() -> None:
    found = {path: list(headed(path.read_text())) for path in CLI}
    assert sum(map(len, found.values())) > 200
    assert {
        path: wrong for path in CLI if (wrong := mislabelled(iter(found[path]), _here(path)))
    } == {}


def test_no_page_of_the_console_says_it() -> None:
    found = {path: list(shown(path.read_text())) for path in sorted(PAGES.glob("*.js"))}
    assert sum(map(len, found.values())) > 200
    assert {p: wrong for p in found if (wrong := mislabelled(iter(found[p]), _here(p)))} == {}


def test_no_document_of_the_command_line_names_another_number() -> None:
    found = {path: list(keyed(path.read_text())) for path in CLI}
    assert sum(map(len, found.values())) > 50
    assert {
        path: wrong for path in CLI if (wrong := misnamed(iter(found[path]), _here(path)))
    } == {}


def test_no_option_says_it() -> None:
    found = {path: list(helps(path.read_text())) for path in CLI}
    assert sum(map(len, found.values())) > 200
    assert {path: wrong for path in CLI if (wrong := misadvised(iter(found[path])))} == {}


def test_no_metric_says_it() -> None:
    found = {path: list(measured(path.read_text())) for path in METRICS}
    assert sum(map(len, found.values())) > 70
    assert {
        path: wrong for path in METRICS if (wrong := misexplained(iter(found[path]), _here(path)))
    } == {}


def test_the_pages_explain_metrics_in_the_same_words() -> None:
    rows = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    found = [row.partition("`: ")[2] for row in rows if row.startswith("- `headrace_")]
    assert len(found) > 70
    assert [text for text in found if OTHERS.search(text)] == []


def test_the_words_are_those_of_the_glossary() -> None:
    words = re.findall(
        r"^- \*\*([\w -]+)\*\*:", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
    assert {"waiting", "unacknowledged", "lag"} <= set(words)


TABLE = """
def ls(found):
    numbers = ("WAITING", "UNACKED")
    table = Table(("NAME", *numbers))
    for each in found:
        table.add(each.name, {first}, {second})
"""


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        ("each.num_pending", "each.num_ack_pending", []),
        ("each.num_waiting", "each.num_ack_pending", ["'WAITING' stands for num_waiting"]),
        ("f'{each.num_pending:,}'", "each.lag", ["'UNACKED' stands for lag"]),
    ],
)
def test_a_column_with_another_number_is_found(first: str, second: str, wrong: list[str]) -> None:
    assert mislabelled(headed(TABLE.format(first=first, second=second))) == wrong


def test_a_label_that_is_no_word_of_the_glossary_is_found_wherever_it_stands() -> None:
    renamed = TABLE.replace('"UNACKED"', '"PENDING"').format(first="0", second="0")
    assert mislabelled(headed(renamed)) == ["'PENDING' is no word of the glossary"]
    info = 'def info(found):\n    return [("Waiting", f"{found.num_ack_pending:,}")]'
    assert mislabelled(headed(info)) == ["'Waiting' stands for num_ack_pending"]
    page = '{ id: "pending", title: "Unacknowledged" }, ["Lag", count(row.ack_pending)], '
    assert mislabelled(shown(page + '{ title: "Outstanding" }'), HERE["console"]) == [
        "'Outstanding' is no word of the glossary",
        "'Unacknowledged' stands for pending",
        "'Lag' stands for ack_pending",
    ]


def test_a_document_an_option_and_a_metric_with_another_word_are_found() -> None:
    assert misnamed(keyed('{"waiting": info.num_waiting, "lag": look.lag}')) == [
        "'waiting' has num_waiting"
    ]
    options = (
        'option("--a", help="messages without an answer"), option("--b", help="go on behind it")'
    )
    assert misadvised(helps(options)) == ["messages without an answer"]
    metrics = (
        '[(Metric("a", "gauge", "Messages left."), lambda q: q.lag),'
        ' (Metric("b", "gauge", "Messages that wait."), lambda q: q.num_ack_pending)]'
    )
    assert misexplained(measured(metrics)) == [
        "'Messages left.' says no word of the glossary",
        "'Messages that wait.' is of num_ack_pending",
    ]
