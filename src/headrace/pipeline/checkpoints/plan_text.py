"""What a query keeps as state, read from Spark's text of its analysed plan. Pure.

Names of columns carry numbers there that are others in every run; a column that the plan makes is replaced
by what makes it. So the same query has the same text, and windows of five and ten minutes have others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

_LINE: Final = re.compile(r"^((?:[:+ ]|- )*)(~?)(\w+)(.*)$")
_ATTRIBUTE: Final = re.compile(r"(`[^`]+`|\w+)#(\d+)L?(?:-T\d+ms)?")
_ALIAS: Final = re.compile(r"^(.*) AS (?:`[^`]+`|\w+)#(\d+)L?(?:-T\d+ms)?$", re.DOTALL)
_WINDOW: Final = re.compile(
    r"^named_struct\(start, .*?precisetimestampconversion\((\w+), TimestampType, LongType\) - (\d+)\) % (\d+)"
    r".*?\+ (\d+)\), LongType, TimestampType",
    re.DOTALL,
)
_WINDOW_OF: Final = re.compile(
    r"^named_struct\(start, .*?precisetimestampconversion\((\w+#\d+L?(?:-T\d+ms)?), TimestampType, "
    r"LongType\) - (\d+)\) % (\d+).*?\+ (\d+)\), LongType, TimestampType",
    re.DOTALL,
)
_SESSION: Final = re.compile(
    r"^named_struct\(start, precisetimestampconversion\(precisetimestampconversion\((\w+), .*?"
    r"cast\((\d+ \w+) as interval\)",
    re.DOTALL,
)
_AGGREGATES: Final = re.compile(
    r"\b(sum|count|avg|mean|min|max|min_by|max_by|first|last|any_value|collect_list|collect_set|"
    r"approx_count_distinct|approx_percentile|percentile|percentile_approx|stddev\w*|std|var\w*|corr|"
    r"covar_\w+|skewness|kurtosis|bool_and|bool_or|every|some|bit_and|bit_or|bit_xor|count_if|median|mode)\("
)
_EQUAL: Final = re.compile(r"\(([^()]+(?:\([^()]*\))?[^()]*) = ([^()]+(?:\([^()]*\))?[^()]*)\)")
_GROUPED: Final = re.compile(r"^(?:FlatMapGroups|TransformWithState)\w*$")


class Node(NamedTuple):
    """A node of a plan: how deep it lies, its name, what stands behind it, whether it is of a stream."""

    depth: int
    name: str
    rest: str
    is_streaming: bool


class Window(NamedTuple):
    """Windows over a column, in microseconds. ``column``: what makes it, without Spark's numbers."""

    column: str
    size: int
    slide: int
    begin: int

    @property
    def text(self) -> str:
        more = "" if self.slide == self.size else f", every {_duration(str(self.slide))}"
        column = self.column if len(self.column) <= 80 else f"{self.column[:77]}..."
        return f"windows of {_duration(str(self.size))}{more} of {column}"

    def starts(self, time: int) -> tuple[int, int]:
        """When the first and the last of the windows that hold a time begin."""
        passed = (time - self.begin) % self.slide
        last = time - passed
        return last - (self.size - 1 - passed) // self.slide * self.slide, last


def windows_of(plan: str) -> list[Window]:
    """The windows that a plan groups by, those of a batch as well; sessions are none."""
    nodes = list(_nodes(plan))
    made = _definitions(nodes)
    found: dict[Window, None] = {}
    for node in nodes:
        lists = _lists(node.rest) if node.name == "Aggregate" else []
        for key in _ATTRIBUTE.findall(lists[0]) if len(lists) > 1 else ():
            value = made.get(key[1], "")
            while (other := _ATTRIBUTE.fullmatch(value)) and other[2] in made:
                value = made[other[2]]  # a name for another column
            if window := _WINDOW_OF.match(value):
                column, begin, slide, size = window.groups()
                found[Window(_resolved(column, made), int(size), int(slide), int(begin))] = None
    return list(found)


def is_only_for_streams(plan: str) -> bool:
    """Whether it leaves out duplicates within a watermark, which Spark does in no batch."""
    return any(node.name == "DeduplicateWithinWatermark" for node in _nodes(plan))


def joins_of(plan: str) -> list[Literal["streams", "table"]]:
    """The joins of a stream: with another stream, or with a table."""
    nodes = list(_nodes(plan))
    found: list[Literal["streams", "table"]] = []
    for index, node in enumerate(nodes):
        if node.name == "Join" and node.is_streaming:
            both = all(each.is_streaming for each in _children(nodes, index))
            found.append("streams" if both else "table")
    return found


def state_of(plan: str) -> list[str]:
    """What each part of a query that keeps state keeps it by; nothing for a query without state."""
    nodes = list(_nodes(plan))
    made = _definitions(nodes)
    return [text for index, node in enumerate(nodes) if (text := _state(nodes, index, node, made))]


def _nodes(plan: str) -> Iterator[Node]:
    for line in plan.splitlines():
        if found := _LINE.match(line):
            yield Node(len(found[1]), found[3], found[4].strip(), found[2] == "~")


def _state(nodes: list[Node], index: int, node: Node, made: dict[str, str]) -> str:
    if not node.is_streaming:
        return ""
    lists = _lists(node.rest)
    if node.name == "Aggregate" and lists:
        # Without keys there is one list, that of the results.
        keys = ", ".join(_resolved(each, made) for each in _split(lists[0]) if len(lists) > 1)
        results = ", ".join(_ALIAS.sub(r"\1", each) for each in _split(lists[-1]))
        calls = dict.fromkeys(_calls(_resolved(results, made)))
        return f"{', '.join(calls) or 'rows'} by {keys or 'nothing'}"
    if node.name in ("Deduplicate", "DeduplicateWithinWatermark") and lists:
        keys = ", ".join(sorted(_resolved(each, made) for each in _split(lists[0])))
        return f"duplicates by {keys}"
    if node.name == "Distinct":
        below = next((_lists(each.rest) for each in nodes[index + 1 :] if _lists(each.rest)), [""])
        columns = [_resolved(_ALIAS.sub(r"\1", each), made) for each in _split(below[-1])]
        return f"duplicates by {', '.join(columns)}"
    if node.name == "Join" and all(each.is_streaming for each in _children(nodes, index)):
        sides = sorted(
            " = ".join(_resolved(side, made) for side in each) for each in _EQUAL.findall(node.rest)
        )
        return f"join by {', '.join(sides) or 'nothing'}"
    if _GROUPED.match(node.name):
        return f"groups by {', '.join(_resolved(each, made) for each in _lists(node.rest)[:1])}"
    return ""


def _children(nodes: list[Node], index: int) -> Iterator[Node]:
    depth = nodes[index].depth
    for node in nodes[index + 1 :]:
        if node.depth <= depth:
            return
        if node.depth == depth + 3:
            yield node


def _definitions(nodes: list[Node]) -> dict[str, str]:
    """By its number, what a column is made of."""
    made: dict[str, str] = {}
    for node in nodes:
        lists = _lists(node.rest)
        if node.name == "Expand" and len(lists) == 2:
            rows, names = _split(lists[0]), _split(lists[1])
            # Each row is a list of its own; sliding windows differ in the first column only.
            first = _split(rows[0][1:-1]) if rows else []
            for name, value in zip(names, first, strict=False):
                if (found := _ATTRIBUTE.fullmatch(name)) and found[2] not in value:
                    made.setdefault(found[2], value)
        for each in (part for text in lists for part in _split(text)):
            if found := _ALIAS.match(each):
                made.setdefault(found[2], found[1])
    return made


def _resolved(text: str, made: dict[str, str], depth: int = 0) -> str:
    """The text without numbers, columns replaced by what makes them."""

    def replace(found: re.Match[str]) -> str:
        if depth < 20 and (value := made.get(found[2])) is not None:
            return _resolved(value, made, depth + 1)
        return found[1]

    whole = _ATTRIBUTE.sub(replace, text.strip())
    if window := _WINDOW.match(whole):
        column, begin, slide, size = window.groups()
        more = "" if slide == size else f", every {_duration(slide)}"
        after = "" if begin == "0" else f", from {_duration(begin)}"
        end = whole[_end_of_call(whole) :]
        return f"windows of {_duration(size)}{more}{after} of {column}{end}"
    if session := _SESSION.match(whole):
        return f"sessions of {session[1]} with gaps of {session[2]}{whole[_end_of_call(whole) :]}"
    return whole


def _duration(micros: str) -> str:
    seconds = int(micros) / 1e6
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:g}s"


def _calls(text: str) -> Iterator[str]:
    """Calls of aggregate functions, as they stand in a text."""
    for found in _AGGREGATES.finditer(text):
        begin = found.start()
        yield text[begin : begin + _end_of_call(text[begin:])]


def _end_of_call(text: str) -> int:
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ")":
            return index + 1
    return len(text)


def _lists(text: str) -> list[str]:
    """The contents of the lists ``[…]`` that stand side by side in a text."""
    found, depth, begin = [], 0, 0
    for index, letter in enumerate(text):
        if letter == "[":
            depth += 1
            begin = index + 1 if depth == 1 else begin
        elif letter == "]":
            depth -= 1
            if depth == 0:
                found.append(text[begin:index])
    return found


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no bracket."""
    found, depth, begin = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            found.append(text[begin:index].strip())
            begin = index + 1
    return [*found, text[begin:].strip()] if text.strip() else found
