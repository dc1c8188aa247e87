"""The subscription trie: patterns stored by token, and the walk that finds those matching a subject.

A node has a child per literal token, one for ``*``, and what subscribed to ``>`` below it. What subscribed
to one pattern is a leaf: plain subscriptions, queue groups, and sinks. A leaf that is alone below a token is
the child there, however much of its pattern is left: there are nodes only where patterns branch, or where a
subject's last token decides. This module knows patterns and leaves; what is delivered to whom, and what is
cached, is the router's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

Entry = TypeVar("Entry")

_WILD: Final = (b"*", b">")
_NO_CHILDREN: Final[dict[bytes, Any]] = {}  # of all nodes that have none; nothing is put into it


class Leaf(Generic[Entry]):
    """What subscribed to exactly one pattern, in order of arrival.

    There may be a hundred thousand for one client, most with one plain entry: what few have is made late.
    """

    __slots__ = ("_many", "_only", "pattern", "queues", "shared")
    literals: ClassVar[dict[bytes, Any]] = _NO_CHILDREN  # below a leaf there is nothing else

    def __init__(self, pattern: bytes) -> None:
        self.pattern = pattern
        self._only: Entry | None = None  # the plain entry, if it is one
        self._many: dict[Entry, None] | None = None  # if it is more
        self.queues: dict[bytes, dict[Entry, None]] | None = None  # the members of each queue group
        self.shared = False  # whether a cached route joins this leaf with others

    @property
    def plain(self) -> Collection[Entry]:
        """Those in no queue group."""
        if self._many is not None:
            return self._many
        return () if self._only is None else (self._only,)

    def members(self, queue: bytes) -> Collection[Entry] | None:
        """Those in a queue group, or the plain ones for ``b""``; empty or None if there are none."""
        if not queue:
            return self.plain
        return None if self.queues is None else self.queues.get(queue)

    def add(self, queue: bytes, entry: Entry) -> None:
        if queue:
            if self.queues is None:
                self.queues = {}
            self.queues.setdefault(queue, {})[entry] = None
        elif self._many is not None:
            self._many[entry] = None
        elif self._only is None:
            self._only = entry
        elif self._only != entry:
            self._many, self._only = {self._only: None, entry: None}, None

    def remove(self, queue: bytes, entry: Entry) -> bool:
        """Whether it was there."""
        members = self.members(queue)
        if members is None or entry not in members:
            return False
        if not queue:
            self._remove_plain(entry)
            return True
        assert self.queues is not None  # it has members
        del self.queues[queue][entry]
        if not self.queues[queue]:
            del self.queues[queue]
        return True

    def _remove_plain(self, entry: Entry) -> None:
        if self._many is None:
            self._only = None
            return
        del self._many[entry]
        if len(self._many) == 1:
            (self._only,) = self._many
            self._many = None

    @property
    def sole(self) -> Entry | None:
        """The one that subscribed, if it is one, and in no queue group."""
        return None if self.queues else self._only

    @property
    def is_bare(self) -> bool:
        return self._only is None and not (self._many or self.queues)

    def fits(self, tokens: list[bytes], depth: int) -> bool | None:
        """Whether this child at a depth matches a subject, whatever that ends in; None if that decides."""
        pattern = self.pattern
        dots, end = pattern.count(b"."), pattern[-2:]
        if dots == depth and end == b".*":  # nothing is left but that, as below most
            return dots == len(tokens) - 1
        own = pattern.split(b".")
        end = own[-1]
        if len(own) > len(tokens) or (len(own) < len(tokens) and end != b">"):
            return False
        for one, other in zip(own[depth:-1], tokens[depth:], strict=False):
            if one not in (other, b"*"):
                return False
        return True if end in _WILD else None


class Node(Generic[Entry]):
    """One token's place."""

    __slots__ = ("leaf", "literals", "star", "tail")

    def __init__(self) -> None:
        self.literals: dict[bytes, Place[Entry]] = _NO_CHILDREN
        self.star: Place[Entry] | None = None
        self.leaf: Leaf[Entry] | None = None  # patterns ending here
        self.tail: Leaf[Entry] | None = None  # patterns ending in `>` here

    def child(self, token: bytes) -> Place[Entry] | None:
        return self.star if token == b"*" else self.literals.get(token)

    def put(self, token: bytes, child: Place[Entry]) -> None:
        """Make this the child, in place of another one if there is one."""
        if token == b"*":
            self.star = child
        elif self.literals is _NO_CHILDREN:
            self.literals = {token: child}
        else:
            self.literals[token] = child

    def open(self, token: bytes, depth: int) -> Node[Entry]:
        """The node of a token's child, at this depth; made if there is none, or is a leaf so far."""
        child = self.child(token)
        if isinstance(child, Node):
            return child
        node: Node[Entry] = Node()
        self.put(token, node)
        if child is not None:
            rest = child.pattern.split(b".", depth + 1)[depth:]
            if not rest:
                node.leaf = child
            elif rest[0] == b">":
                node.tail = child
            else:
                node.put(rest[0], child)
        return node

    def own(self, pattern: bytes, *, is_tail: bool) -> Leaf[Entry]:
        """The leaf of a pattern that ends here, or in ``>`` here; made if there is none."""
        leaf = (self.tail if is_tail else self.leaf) or Leaf(pattern)
        if is_tail:
            self.tail = leaf
        else:
            self.leaf = leaf
        return leaf

    def is_bare(self) -> bool:
        return not (self.literals or self.star or self.leaf or self.tail)


Place: TypeAlias = Node[Entry] | Leaf[Entry]
"""What stands at a token: a leaf that is alone there, or a node."""


class Trie(Generic[Entry]):
    """A multiset of ``(pattern, queue, entry)``; patterns are valid, the caller has checked."""

    def __init__(self) -> None:
        self.root: Node[Entry] = Node()

    def add(self, pattern: bytes, queue: bytes, entry: Entry) -> Leaf[Entry]:
        """Insert; returns the leaf that changed."""
        node = self.root
        tokens = pattern.split(b".")
        is_tail = tokens[-1] == b">"
        if is_tail:
            del tokens[-1]
        for depth, token in enumerate(tokens, 1):
            child = node.star if token == b"*" else node.literals.get(token)
            if child is None:
                leaf: Leaf[Entry] = Leaf(pattern)
                node.put(token, leaf)
                break
            if isinstance(child, Leaf):
                if child.pattern == pattern:
                    leaf = child
                    break
                child = node.open(token, depth)
            node = child
        else:
            leaf = node.own(pattern, is_tail=is_tail)
        leaf.add(queue, entry)
        return leaf

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
            if last in parent.literals:
                yield pattern, self.add(pattern, queue, entry)
                continue
            leaf: Leaf[Entry] = Leaf(pattern)
            parent.put(last, leaf)
            leaf.add(queue, entry)
            yield pattern, leaf

    def _open(self, pattern: bytes) -> Node[Entry]:
        """The node where a pattern without ``>`` ends, made if it is not there."""
        node = self.root
        for depth, token in enumerate(pattern.split(b"."), 1):
            node = node.open(token, depth)
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
                leaf = None if parent is None else _removed_below(parent, pattern, last, entry)
                if leaf is not None:
                    yield pattern, leaf
                    continue
            head, parent = above, None
            changed = self.remove(pattern, queue, entry)
            if changed is not None:
                yield pattern, changed

    def _node(self, pattern: bytes) -> Node[Entry] | None:
        """The node where a pattern without ``>`` ends, if there is one; nothing is the root."""
        node = self.root
        for token in pattern.split(b".") if pattern else ():
            child = node.child(token)
            if not isinstance(child, Node):
                return None
            node = child
        return node

    def remove(self, pattern: bytes, queue: bytes, entry: Entry) -> Leaf[Entry] | None:
        """Remove, with the nodes nobody needs any more; the leaf that changed, None if not there."""
        path: list[tuple[Node[Entry], bytes]] = []
        node = self.root
        tokens = pattern.split(b".")
        is_tail = tokens[-1] == b">"
        leaf: Leaf[Entry] | None = None
        for token in tokens[:-1] if is_tail else tokens:
            child = node.star if token == b"*" else node.literals.get(token)
            if child is None:
                return None
            path.append((node, token))
            if isinstance(child, Leaf):
                leaf = child if child.pattern == pattern else None
                break
            node = child
        else:
            leaf = node.tail if is_tail else node.leaf
        if leaf is None or not leaf.remove(queue, entry):
            return None
        if leaf.is_bare:
            if leaf is node.tail:
                node.tail = None
            elif leaf is node.leaf:
                node.leaf = None
            else:
                _take_out(*path.pop())
            _prune(node, path)
        return leaf

    def leaf(self, pattern: bytes) -> Leaf[Entry] | None:
        """What subscribed to exactly this pattern, which does not end in ``>``; None if nobody did."""
        node = self.root
        for token in pattern.split(b"."):
            child = node.child(token)
            if child is None:
                return None
            if isinstance(child, Leaf):
                return child if child.pattern == pattern else None
            node = child
        return node.leaf

    def walk(self, tokens: list[bytes]) -> tuple[list[Leaf[Entry]], list[Place[Entry]]]:
        """Follow all but the last token: the ``>`` leaves passed, and what was reached.

        What matches the subject is then up to the last token: see ``add_ends``. A leaf that is reached
        matches, whatever that is.
        """
        found: list[Leaf[Entry]] = []
        places: list[Place[Entry]] = [self.root]
        for depth, token in enumerate(tokens[:-1]):
            reached: list[Place[Entry]] = []
            for place in places:
                if isinstance(place, Leaf):
                    if place.pattern.count(b".") == depth:
                        found.append(place)  # its `>` stands here
                    else:
                        reached.append(place)
                    continue
                if place.tail is not None:
                    found.append(place.tail)
                child = place.literals.get(token)
                if isinstance(child, Leaf):
                    fits = child.fits(tokens, depth + 1)
                    child = (
                        place.open(token, depth + 1) if fits is None else child if fits else None
                    )
                if child is not None:
                    reached.append(child)
                child = place.star
                if isinstance(child, Leaf):
                    fits = child.fits(tokens, depth + 1)
                    child = place.open(b"*", depth + 1) if fits is None else child if fits else None
                if child is not None:
                    reached.append(child)
            places = reached
            if not places:
                break
        return found, places

    @staticmethod
    def add_ends(places: list[Place[Entry]], tokens: list[bytes], found: list[Leaf[Entry]]) -> None:
        """Add to ``found`` the leaves that match by the last token, at what ``walk`` reached."""
        last, dots = tokens[-1], len(tokens) - 1
        for place in places:
            if isinstance(place, Leaf):
                found.append(place)
                continue
            if place.tail is not None:
                found.append(place.tail)
            for child in (place.literals.get(last), place.star):
                if isinstance(child, Leaf):
                    if child.pattern.count(b".") == dots and child.pattern[-2:] != b".>":
                        found.append(child)
                elif child is not None and child.leaf is not None:
                    found.append(child.leaf)

    def whole_below(self, tokens: Iterable[bytes]) -> list[Leaf[Entry]] | None:
        """The leaves that match all subjects that go on from here; None if others match some of them."""
        found: list[Leaf[Entry]] = []
        nodes = [self.root]
        for depth, token in enumerate(tokens, 1):
            found += [node.tail for node in nodes if node.tail is not None]
            nodes = [
                node.open(name, depth)
                for node in nodes
                for name in (token, b"*")
                if node.child(name) is not None
            ]
        if any(node.literals or node.star for node in nodes):
            return None
        return found + [node.tail for node in nodes if node.tail is not None]


def _prune(node: Node[Entry], path: list[tuple[Node[Entry], bytes]]) -> None:
    """Take out the nodes of a path that nobody needs, from its end."""
    for parent, token in reversed(path):
        if not node.is_bare():
            return
        _take_out(parent, token)
        node = parent


def _take_out(parent: Node[Entry], token: bytes) -> None:
    if token == b"*":
        parent.star = None
    else:
        del parent.literals[token]


def _removed_below(
    parent: Node[Entry], pattern: bytes, last: bytes, entry: Entry
) -> Leaf[Entry] | None:
    """Remove a plain entry of a leaf that is a child, if no node goes with it; the leaf that changed."""
    leaf = parent.literals.get(last)
    if not isinstance(leaf, Leaf) or leaf.pattern != pattern or entry not in leaf.plain:
        return None
    if leaf.sole == entry:
        if len(parent.literals) == 1:
            return None
        del parent.literals[last]
    leaf.remove(b"", entry)
    return leaf
