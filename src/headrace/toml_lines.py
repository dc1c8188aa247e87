"""In which line of a TOML file a key stands: the parser of the standard library does not tell.

This finds what is written one key a line, under its ``[table]``. A key inside an inline table or an array has
the line of the key that holds it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from .documents import parse_toml

Path = tuple[str, ...]

_TABLE: Final = re.compile(r"^\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(
    r"^\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)
_QUOTES: Final = re.compile(r'"""|\'\'\'|"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*')


def find_lines(text: str) -> dict[Path, int]:
    """The line of each table and key, under its path. An array of tables counts them: ``("a", "0")``."""
    found: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}
    open_quote, depth = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not open_quote and not depth:
            if (header := _TABLE.match(line)) and "=" not in header[2].split('"')[0]:
                table = _split(header[2])
                table = _with_numbers(table, counts, anew=header[1] == "[[")
                found.setdefault(table, number)
            elif key := _KEY.match(line):
                found.setdefault((*table, *_split(key[1])), number)
        open_quote, depth = _open_after(line, open_quote, depth)
    return found


def find_line(found: dict[Path, int], path: Path) -> int:
    """The line of ``path``, of the first thing in it, or of what holds it; 0 if there is none."""
    while path:
        inside = (line for each, line in found.items() if each[: len(path)] == path)
        if line := found.get(path) or min(inside, default=0):
            return line
        path = path[:-1]
    return 0


def _split(dotted: str) -> Path:
    """The parts of a dotted key, by the rules of TOML."""
    try:
        nested: Any = parse_toml(f"{dotted} = 0")
    except ValueError:
        return (dotted,)
    parts: list[str] = []
    while isinstance(nested, dict):
        ((part, nested),) = nested.items()
        parts.append(part)
    return tuple(parts)


def _with_numbers(table: Path, counts: dict[Path, int], *, anew: bool) -> Path:
    """The path of a table with the places of the arrays of tables in it."""
    path: Path = ()
    for index, part in enumerate(table):
        path = (*path, part)
        if anew and index == len(table) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, str(counts[path]))
    return path


def _open_after(line: str, open_quote: str, depth: int) -> tuple[str, int]:
    """Whether a text of several lines, or an array, is still open after this line."""
    position = 0
    if open_quote:
        end = line.find(open_quote)
        if end < 0:
            return open_quote, depth
        position = end + 3
    while position < len(line):
        quote = _QUOTES.match(line, position)
        if quote is not None:
            if quote[0] in ('"""', "'''"):
                end = line.find(quote[0], quote.end())
                if end < 0:
                    return quote[0], depth
                position = end + 3
            else:
                position = quote.end()
            continue
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(line[position], 0)
        position += 1
    return "", max(0, depth)
