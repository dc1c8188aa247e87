"""Many subject patterns at once: whether one of them overlaps another, or contains it.

Comparing each with each takes minutes for the tens of thousands that a request may name; a tree of their
tokens takes milliseconds. For some patterns the tree does not help. So steps beyond a few for each token
are counted, and limited.

Most patterns are literal, and two literals overlap only if they are equal. So literals stay out of the tree
until the first query with a wildcard.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, combinations
from operator import itemgetter
from typing import Any, Final, final

__all__ = [
    "PATTERNS_MAX",
    "PatternTree",
    "TooManyPatternsError",
    "are_apart",
    "are_literal",
    "check_branches",
    "check_count",
]

PATTERNS_MAX: Final = 5_000  # in one request: 50 ms to compare, in which no client is served
TREE_TOKENS_MAX: Final = 12_500  # of patterns that only a tree can compare: some 15 ms
STEPS_MAX: Final = 50_000  # some 12 ms; beyond: TooManyPatternsError
SHAPES_MAX: Final = 8  # that are compared with each other; more are quicker in a tree
STEPS_PER_TOKEN: Final = 4  # free steps, not counted

_ONE: Final = b"*"
_REST: Final = b">"
_WILD: Final = frozenset((_ONE, _REST))
_END: Final = b""  # the key of a pattern that ends here; no token is empty

_NOT_SHAPE: Final = bytes(set(range(256)) - set(b".*>\n"))
_WITHIN_TOKEN: Final = re.compile(rb"[^.\n][*>]|[*>][^.\n]")

_Node = dict[bytes, Any]


class TooManyPatternsError(ValueError):
    """Comparing these patterns would take too long."""


def check_count(count: int) -> None:
    """Raise TooManyPatternsError for more patterns than one request may name."""
    if count > PATTERNS_MAX:
        raise TooManyPatternsError(
            f"too many subjects to compare with each other: {count}; accepted are {PATTERNS_MAX}"
        )


def check_branches(patterns: Collection[bytes]) -> None:
    """Raise TooManyPatternsError for patterns of one request that make a tree too large to be quick."""
    count = sum([pattern.count(b".") + 1 for pattern in patterns])
    if count > TREE_TOKENS_MAX and not are_literal(patterns):
        raise TooManyPatternsError(
            f"too many tokens in subjects of many shapes: {count}; accepted are {TREE_TOKENS_MAX}"
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

    def is_apart_from(self, patterns: Iterable[bytes]) -> bool:
        """Whether the first tokens tell that none of these overlaps one of the set."""
        self._plant_literals()
        root = self._root
        firsts = {pattern.partition(b".")[0] for pattern in patterns}
        if not (root and firsts):
            return True
        return _WILD.isdisjoint(firsts) and _WILD.isdisjoint(root) and firsts.isdisjoint(root)

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
            self._plant_literals()
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

    def _plant_literals(self) -> None:
        for literal in self._literals:
            self._plant(literal)
        self._literals.clear()

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


def are_apart(patterns: Sequence[bytes]) -> bool:
    """Whether no two of these have a subject in common, as far as that is seen without a tree.

    Patterns of one shape, with as many tokens and wildcards in the same places, have a subject in common only
    if they are equal. Those of two shapes have none if what both say literally differs. May be False where
    many shapes begin with the same token, or a token that is no wildcard has ``*`` or ``>`` in it.
    """
    together = b"\n".join(patterns)
    if len(set(patterns)) < len(patterns) or _WITHIN_TOKEN.search(together):
        return False
    if are_literal((together,)):
        return True
    shapes = together.translate(None, _NOT_SHAPE).split(b"\n")
    if len(set(shapes)) == 1:
        return True
    counts = Counter([pattern.partition(b".")[0] for pattern in patterns])
    begin_literally = _WILD.isdisjoint(counts)
    groups: dict[bytes, list[list[bytes]]] = {}
    for shape, pattern in zip(shapes, patterns, strict=True):
        tokens = pattern.split(b".")
        if counts[tokens[0]] > 1 or not begin_literally:
            groups.setdefault(shape, []).append(tokens)
    return len(groups) <= SHAPES_MAX and all(
        _differ(one, groups[one], other, groups[other]) for one, other in combinations(groups, 2)
    )


def _differ(shape: bytes, ours: list[list[bytes]], other: bytes, theirs: list[list[bytes]]) -> bool:
    """Whether none of ours overlaps one of theirs, all split into tokens."""
    if shape.count(b".") != other.count(b".") and _REST not in (shape[-1:], other[-1:]):
        return True
    both = zip(shape.split(b"."), other.split(b"."), strict=False)
    places = [place for place, tokens in enumerate(both) if tokens == (b"", b"")]
    if not places:
        return False
    said = itemgetter(*places)
    return set(map(said, ours)).isdisjoint(map(said, theirs))


def _may_be_wild(pattern: bytes) -> bool:
    """False only if there is no wildcard."""
    return b"*" in pattern or pattern[-1:] == _REST
