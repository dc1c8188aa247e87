"""Many subject patterns at once: whether one of them overlaps another, or contains it.

Comparing each with each takes minutes for the tens of thousands that a request may name; a tree of their
tokens takes milliseconds. For some patterns the tree does not help. So steps beyond a few for each token
are counted, and limited.

Most patterns are literal, and two literals overlap only if they are equal. So literals stay out of the tree
until the first query with a wildcard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Final, final

__all__ = ["PATTERNS_MAX", "PatternTree", "TooManyPatternsError", "are_literal", "check_count"]

PATTERNS_MAX: Final = 5_000  # in one request: 50 ms to compare, in which no client is served
STEPS_MAX: Final = 100_000  # some 25 ms; beyond: TooManyPatternsError
STEPS_PER_TOKEN: Final = 4  # free steps, not counted

_ONE: Final = b"*"
_REST: Final = b">"
_WILD: Final = frozenset((_ONE, _REST))
_END: Final = b""  # the key of a pattern that ends here; no token is empty

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
    """A set of valid patterns. All queries share ``STEPS_MAX`` steps."""

    def __init__(self, patterns: Iterable[bytes] = ()) -> None:
        self._literals: dict[bytes, None] = {}  # the patterns that are not in the tree
        self._root: _Node = {}
        self._steps_left = STEPS_MAX
        self.update(patterns)

    def has_no_branch_for(self, patterns: Iterable[bytes]) -> bool:
        """Whether the first tokens of these literals tell that they overlap only with equal literals."""
        root = self._root
        if not root:
            return True
        if not _WILD.isdisjoint(root):
            return False
        return root.keys().isdisjoint({pattern.partition(b".")[0] for pattern in patterns})

    def update(self, patterns: Iterable[bytes]) -> None:
        """Add these patterns."""
        patterns = list(patterns)
        if are_literal(patterns):
            self._literals.update(dict.fromkeys(patterns))
            return
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: bytes) -> None:
        """Add a pattern; adding it twice has no effect."""
        if _may_be_wild(pattern):
            self._plant(pattern)
        else:
            self._literals[pattern] = None

    def discard(self, pattern: bytes) -> None:
        """Remove a pattern; no error if the set does not have it."""
        self._literals.pop(pattern, None)
        path: list[tuple[_Node, bytes]] = []
        node = self._root
        for token in pattern.split(b"."):
            if token not in node:
                return
            path.append((node, token))
            node = node[token]
        node.pop(_END, None)
        for parent, token in reversed(path):
            if parent[token]:
                return
            del parent[token]

    def ask_anew(self) -> None:
        """Give the following queries a new budget of ``STEPS_MAX`` steps."""
        self._steps_left = STEPS_MAX

    def overlapping(self, pattern: bytes) -> bytes | None:
        """A pattern of the set that shares a subject with this one. Raises TooManyPatternsError."""
        return next(self.all_overlapping(pattern), None)

    def overlaps_any(self, patterns: Collection[bytes]) -> bool:
        """Whether one of these shares a subject with one of the set. Raises TooManyPatternsError.

        First tokens alone tell apart the partitions of many consumers.
        """
        firsts = {pattern.partition(b".")[0] for pattern in patterns}
        is_told = not (self._literals or _WILD & firsts or _WILD & self._root.keys())
        if is_told and firsts.isdisjoint(self._root):
            return False
        return any(self.overlapping(pattern) is not None for pattern in patterns)

    def all_overlapping(self, pattern: bytes) -> Iterator[bytes]:
        """The patterns of the set that share a subject with this one. Raises TooManyPatternsError."""
        if _may_be_wild(pattern):
            for literal in self._literals:
                self._plant(literal)
            self._literals.clear()
        equal = (pattern,) if pattern in self._literals else ()
        return chain(equal, self._walk(pattern) if self._root else ())

    def _walk(self, pattern: bytes) -> Iterator[bytes]:
        nodes: list[_Node] = [self._root]
        for token in pattern.split(b"."):
            self._spend(len(nodes) - STEPS_PER_TOKEN)
            reached: list[_Node] = []
            for node in nodes:
                if _REST in node:
                    yield from self._below(node[_REST])
                if token == _REST:
                    for key, child in node.items():
                        if key not in (_END, _REST):
                            yield from self._below(child)
                    continue
                if token == _ONE:
                    self._spend(len(node))
                    reached += [child for key, child in node.items() if key not in (_END, _REST)]
                else:
                    reached += [node[key] for key in (token, _ONE) if key in node]
            nodes = reached
            if not nodes:
                return
        for node in nodes:
            if _END in node:
                yield node[_END]

    def _below(self, node: _Node) -> Iterator[bytes]:
        """The patterns that end at this node or below it; the first of them does not count as a step."""
        nodes = [node]
        while nodes:
            node = nodes.pop()
            for key, child in node.items():
                if key == _END:
                    yield child
                    self._spend(1)
                else:
                    nodes.append(child)

    def _plant(self, pattern: bytes) -> None:
        node = self._root
        for token in pattern.split(b"."):
            node = node.setdefault(token, {})
        node[_END] = pattern

    def containing(self, pattern: bytes) -> bytes | None:
        """Another pattern that matches every subject of this one. Raises TooManyPatternsError."""
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


def are_literal(patterns: Iterable[bytes]) -> bool:
    """Whether none of these has a wildcard. May be False for unusual literals."""
    together = b" ".join(patterns)
    return b"*" not in together and b">" not in together


def _may_be_wild(pattern: bytes) -> bool:
    """False only if there is no wildcard."""
    return b"*" in pattern or pattern[-1:] == _REST
