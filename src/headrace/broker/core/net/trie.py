"""The subscription trie: patterns stored by token, and the walk that finds those matching a subject.

A node has a child per literal token, one for ``*``, and what subscribed to ``>`` below it. What ends
at a node is a leaf: plain subscriptions, queue groups, and sinks. A node that only one pattern passes is
folded: the nodes below it are made when somebody walks there, or when another pattern comes; thousands of
patterns of one stream are added in a third of the time so. Where only a last ``*`` is left nobody has to.
This module knows patterns and leaves; what is delivered to whom, and what is cached, is the router's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

Entry = TypeVar("Entry")

_WILD: Final = (b"*", b">")
_NO_CHILDREN: Final[dict[bytes, Any]] = {}  # of all nodes that have none; nothing is put into it


class Leaf(Generic[Entry]):
    """What subscribed to exactly one pattern, in order of arrival.

    There may be a hundred thousand for one client, most with one plain entry: what few have is made late.
    """

    __slots__ = ("pattern", "plain", "queues", "shared")

    def __init__(self, pattern: bytes) -> None:
        self.pattern = pattern
        self.plain: dict[Entry, None] = {}
        self.queues: dict[bytes, dict[Entry, None]] | None = None  # the members of each queue group
        self.shared = False  # whether a cached route joins this leaf with others

    def members(self, queue: bytes) -> dict[Entry, None] | None:
        """Those in a queue group, or the plain ones for ``b""``; empty or None if there are none."""
        if not queue:
            return self.plain
        return None if self.queues is None else self.queues.get(queue)

    def add(self, queue: bytes, entry: Entry) -> None:
        if not queue:
            self.plain[entry] = None
        else:
            if self.queues is None:
                self.queues = {}
            self.queues.setdefault(queue, {})[entry] = None

    def remove(self, queue: bytes, entry: Entry) -> bool:
        """Whether it was there."""
        members = self.members(queue)
        if members is None or entry not in members:
            return False
        del members[entry]
        if self.queues is not None and queue and not members:
            del self.queues[queue]
        return True

    @property
    def sole(self) -> Entry | None:
        """The one that subscribed, if it is one, and in no queue group."""
        plain = self.plain
        return next(iter(plain)) if len(plain) == 1 and not self.queues else None

    @property
    def is_bare(self) -> bool:
        return not (self.plain or self.queues)


class Node(Generic[Entry]):
    """One token's place."""

    __slots__ = ("folded", "leaf", "literals", "star", "tail")

    def __init__(self) -> None:
        self.literals: dict[bytes, Node[Entry]] = _NO_CHILDREN
        self.star: Node[Entry] | None = None
        self.leaf: Leaf[Entry] | None = None  # patterns ending here
        self.tail: Leaf[Entry] | None = None  # patterns ending in `>` here
        self.folded: tuple[int, Leaf[Entry], bool] | None = None
        """The only leaf below, which of its tokens comes next, and whether that is a last ``*``.

        Everything else is empty then.
        """

    def add_literal(self, token: bytes) -> Node[Entry]:
        """A new child."""
        if self.literals is _NO_CHILDREN:
            self.literals = {}
        child = self.literals[token] = Node()
        return child

    def child(self, token: bytes) -> Node[Entry] | None:
        return self.star if token == b"*" else self.literals.get(token)

    def add_child(self, token: bytes) -> Node[Entry]:
        """A new child, for a token that has none."""
        if token == b"*":
            self.star = Node()
            return self.star
        return self.add_literal(token)

    def fold(self, position: int, leaf: Leaf[Entry], tokens: list[bytes]) -> None:
        """Put the tokens of a leaf from this position on below a new node."""
        if position == len(tokens):
            self.leaf = leaf
        elif tokens[position] == b">":
            self.tail = leaf
        else:
            is_any = position == len(tokens) - 1 and tokens[position] == b"*"
            self.folded = (position, leaf, is_any)

    def unfold(self) -> None:
        """Make the nodes below, if this one is folded."""
        if self.folded is None:
            return
        position, leaf, _is_any = self.folded
        self.folded = None
        tokens = leaf.pattern.split(b".")
        node = self
        is_tail = tokens[-1] == b">"
        for token in tokens[position:-1] if is_tail else tokens[position:]:
            node = node.add_child(token)
        if is_tail:
            node.tail = leaf
        else:
            node.leaf = leaf

    def is_bare(self) -> bool:
        return not (self.literals or self.star or self.leaf or self.tail or self.folded)


class Trie(Generic[Entry]):
    """A multiset of ``(pattern, queue, entry)``; patterns are valid, the caller has checked."""

    def __init__(self) -> None:
        self.root: Node[Entry] = Node()

    def add(self, pattern: bytes, queue: bytes, entry: Entry) -> Leaf[Entry]:
        """Insert; returns the leaf that changed."""
        leaf = self._leaf_for(pattern)
        leaf.add(queue, entry)
        return leaf

    def _leaf_for(self, pattern: bytes) -> Leaf[Entry]:
        """The leaf of exactly this pattern, made if there is none."""
        node = self.root
        tokens = pattern.split(b".")
        is_tail = tokens[-1] == b">"
        for position, token in enumerate(tokens[:-1] if is_tail else tokens, 1):
            child = node.star if token == b"*" else node.literals.get(token)
            if child is None:
                leaf: Leaf[Entry] = Leaf(pattern)
                node.add_child(token).fold(position, leaf, tokens)
                return leaf
            if child.folded is not None:
                if child.folded[1].pattern == pattern:
                    return child.folded[1]
                child.unfold()
            node = child
        if is_tail:
            if node.tail is None:
                node.tail = Leaf(pattern)
            return node.tail
        if node.leaf is None:
            node.leaf = Leaf(pattern)
        return node.leaf

    def add_all(
        self, patterns: Iterable[bytes], queue: bytes, entry: Entry
    ) -> Iterator[tuple[bytes, Leaf[Entry]]]:
        """As ``add`` for each, in less time if neighbours differ in their last token only."""
        head: bytes | None = None
        parent: Node[Entry] | None = None
        for pattern in patterns:
            above, dot, last = pattern.rpartition(b".")
            if last in _WILD or above != head:
                head, parent = above, None
                yield pattern, self.add(pattern, queue, entry)
                continue
            if parent is None:  # the second one below it
                parent = self._open(above) if dot else self.root
            node = parent.literals.get(last)
            if node is None:
                node = parent.add_literal(last)
            elif node.folded is not None:
                node.unfold()
            leaf = node.leaf
            if leaf is None:
                leaf = node.leaf = Leaf(pattern)
            leaf.add(queue, entry)
            yield pattern, leaf

    def _open(self, pattern: bytes) -> Node[Entry]:
        """Where a pattern without ``>`` ends, made if it is not there, and not folded."""
        node = self.root
        for token in pattern.split(b"."):
            child = node.child(token)
            node = node.add_child(token) if child is None else child
            node.unfold()
        return node

    def remove_all(
        self, entries: Iterable[tuple[bytes, bytes, Entry]]
    ) -> Iterator[tuple[bytes, Leaf[Entry]]]:
        """``remove`` for each ``(pattern, queue, entry)``; the pattern and leaf of each that was there.

        It takes less time if the patterns of neighbours differ in their last token only.
        """
        head: bytes | None = None
        parent: Node[Entry] | None = None
        for pattern, queue, entry in entries:
            above, _dot, last = pattern.rpartition(b".")
            if above == head and not queue and last not in _WILD:
                if parent is None:  # the second one below it, or the nodes may have changed
                    parent = self._node(above)
                leaf = None if parent is None else _removed_below(parent, last, entry)
                if leaf is not None:
                    yield pattern, leaf
                    continue
            head, parent = above, None
            changed = self.remove(pattern, queue, entry)
            if changed is not None:
                yield pattern, changed

    def _node(self, pattern: bytes) -> Node[Entry] | None:
        """Where a pattern without ``>`` ends; nothing is the root. None if that is within a folded node."""
        node = self.root
        for token in pattern.split(b".") if pattern else ():
            child = node.child(token)
            if child is None:
                return None
            node = child
        return node

    def remove(self, pattern: bytes, queue: bytes, entry: Entry) -> Leaf[Entry] | None:
        """Remove, with the nodes nobody needs any more; the leaf that changed, None if not there."""
        path: list[tuple[Node[Entry], bytes]] = []
        node = self.root
        tokens = pattern.split(b".")
        is_tail = tokens[-1] == b">"
        for token in tokens[:-1] if is_tail else tokens:
            child = node.star if token == b"*" else node.literals.get(token)
            if child is None:
                break  # or it is folded
            path.append((node, token))
            node = child
        if node.folded is not None:
            return self._remove_folded(node, path, pattern, queue, entry)
        if len(path) < len(tokens) - is_tail:
            return None
        leaf = node.tail if is_tail else node.leaf
        if leaf is None or not leaf.remove(queue, entry):
            return None
        if leaf.is_bare:
            if is_tail:
                node.tail = None
            else:
                node.leaf = None
            self._prune(node, path)
        return leaf

    def _remove_folded(
        self,
        node: Node[Entry],
        path: list[tuple[Node[Entry], bytes]],
        pattern: bytes,
        queue: bytes,
        entry: Entry,
    ) -> Leaf[Entry] | None:
        leaf = node.folded[1] if node.folded is not None else None
        if leaf is None or leaf.pattern != pattern or not leaf.remove(queue, entry):
            return None
        if leaf.is_bare:
            node.folded = None
            self._prune(node, path)
        return leaf

    def leaf(self, pattern: bytes) -> Leaf[Entry] | None:
        """What subscribed to exactly this pattern, which does not end in ``>``; None if nobody did."""
        node = self.root
        for token in pattern.split(b"."):
            child = node.child(token)
            if child is None:
                return None
            child.unfold()
            node = child
        return node.leaf

    def walk(self, tokens: list[bytes]) -> tuple[list[Leaf[Entry]], list[Node[Entry]]]:
        """Follow all but the last token: the ``>`` leaves passed, and the nodes reached.

        What matches the subject is then up to the last token: see ``ends``. A node that is reached may be
        folded still, if whatever comes last matches its leaf.
        """
        found: list[Leaf[Entry]] = []
        nodes = [self.root]
        last_step = len(tokens) - 1
        for step, token in enumerate(tokens[:-1], 1):
            reached: list[Node[Entry]] = []
            for node in nodes:
                if node.tail is not None:
                    found.append(node.tail)
                child = node.literals.get(token)
                if child is not None:
                    folded = child.folded
                    if folded is not None and not (step == last_step and folded[2]):
                        child.unfold()
                    reached.append(child)
                child = node.star
                if child is not None:
                    folded = child.folded
                    if folded is not None and not (step == last_step and folded[2]):
                        child.unfold()
                    reached.append(child)
            nodes = reached
            if not nodes:
                break
        return found, nodes

    @staticmethod
    def add_ends(nodes: list[Node[Entry]], last: bytes, found: list[Leaf[Entry]]) -> None:
        """Add to ``found`` the leaves matching ``last`` at the nodes ``walk`` reached."""
        for node in nodes:
            if node.folded is not None:
                found.append(node.folded[1])  # there is nothing else
                continue
            if node.tail is not None:
                found.append(node.tail)
            child = node.literals.get(last)
            if child is not None and child.leaf is not None:
                found.append(child.leaf)
            if node.star is not None and node.star.leaf is not None:
                found.append(node.star.leaf)

    @staticmethod
    def _prune(node: Node[Entry], path: list[tuple[Node[Entry], bytes]]) -> None:
        for parent, token in reversed(path):
            if not node.is_bare():
                return
            if token == b"*":
                parent.star = None
            else:
                del parent.literals[token]
            node = parent


def _removed_below(parent: Node[Entry], last: bytes, entry: Entry) -> Leaf[Entry] | None:
    """Remove a plain entry from a child, if no node but the child goes with it; the leaf that changed."""
    node = parent.literals.get(last)
    leaf = None if node is None else node.leaf
    if node is None or leaf is None or entry not in leaf.plain:
        return None
    if len(leaf.plain) == 1 and not leaf.queues:
        if len(parent.literals) == 1 or node.literals or node.star or node.tail:
            return None
        node.leaf = None
        del parent.literals[last]
    del leaf.plain[entry]
    return leaf
