"""Many subject patterns at once: whether one of them overlaps another, or contains it.

Comparing each with each takes minutes for the tens of thousands a request may name; the tree of their
tokens takes milliseconds. Patterns can be made for which the tree is no help, so the steps beyond a few for
each token are counted, and there is an end to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, final

__all__ = ["PATTERNS_MAX", "PatternTree", "TooManyPatternsError", "check_count"]

PATTERNS_MAX: Final = (
    5_000  # of one request: looking at them takes 50 ms, in which nobody is served
)
STEPS_MAX: Final = 100_000  # some 25 ms; more: TooManyPatternsError
STEPS_PER_TOKEN: Final = 4  # these are not counted

_ONE: Final = b"*"
_REST: Final = b">"
_END: Final = b""  # no token is empty: under this key stands the pattern that ends here

_Node = dict[bytes, Any]


class TooManyPatternsError(ValueError):
    """Comparing these patterns would take too long."""


def check_count(count: int) -> None:
    """Raise TooManyPatternsError for more patterns than one request may name."""
    if count > PATTERNS_MAX:
        raise TooManyPatternsError(
            f"too many subjects to compare with each other: {count}; accepted are {PATTERNS_MAX}"
        )


@final
class PatternTree:
    """A set of valid patterns. Questions share ``STEPS_MAX`` steps."""

    def __init__(self, patterns: Iterable[bytes] = ()) -> None:
        self._root: _Node = {}
        self._steps_left = STEPS_MAX
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: bytes) -> None:
        """Put a pattern in; twice is once."""
        node = self._root
        for token in pattern.split(b"."):
            node = node.setdefault(token, {})
        node[_END] = pattern

    def overlapping(self, pattern: bytes) -> bytes | None:
        """A pattern of the set with which this one shares a subject. Raises TooManyPatternsError."""
        nodes: list[_Node] = [self._root]
        for token in pattern.split(b"."):
            self._spend(len(nodes) - STEPS_PER_TOKEN)
            reached: list[_Node] = []
            for node in nodes:
                if _REST in node:
                    return _any_below(node[_REST])
                if token == _REST:
                    below = next((child for key, child in node.items() if key != _END), None)
                    if below is not None:
                        return _any_below(below)
                    continue
                if token == _ONE:
                    self._spend(len(node))
                    reached += [child for key, child in node.items() if key != _END]
                else:
                    reached += [node[key] for key in (token, _ONE) if key in node]
            nodes = reached
            if not nodes:
                return None
        return next((node[_END] for node in nodes if _END in node), None)

    def containing(self, pattern: bytes) -> bytes | None:
        """Another pattern of the set that has every subject of this one. Raises TooManyPatternsError."""
        nodes: list[_Node] = [self._root]
        for token in pattern.split(b"."):
            self._spend(len(nodes) - STEPS_PER_TOKEN)
            reached: list[_Node] = []
            for node in nodes:
                rest = node.get(_REST)
                if rest is not None and rest[_END] != pattern:
                    found: bytes = rest[_END]
                    return found
                if token == _REST:
                    continue
                keys = (_ONE,) if token == _ONE else (token, _ONE)
                reached += [node[key] for key in keys if key in node]
            nodes = reached
            if not nodes:
                return None
        ends = (node[_END] for node in nodes if _END in node)
        return next((end for end in ends if end != pattern), None)

    def _spend(self, steps: int) -> None:
        if steps > 0:
            self._steps_left -= steps
        if self._steps_left < 0:
            raise TooManyPatternsError("too many subjects to compare with each other")


def _any_below(node: _Node) -> bytes:
    """Some pattern that ends at this node or below it."""
    while _END not in node:
        node = next(iter(node.values()))
    found: bytes = node[_END]
    return found
