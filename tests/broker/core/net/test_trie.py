"""The trie and a plain list of its patterns say the same, in whatever way it was walked meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.net.trie import Leaf, Node, Trie
from headrace.subjects import matches, overlaps

TOKENS = st.sampled_from([b"a", b"b", b"*"])
PATTERNS = st.builds(
    lambda tokens, tail: b".".join([*tokens, b">"] if tail else tokens),
    st.lists(TOKENS, min_size=1, max_size=5),
    st.booleans(),
)
SUBJECTS = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=6)
QUEUES = st.sampled_from([b"", b"q"])
STEPS = st.one_of(
    st.tuples(st.just("add"), st.lists(PATTERNS, min_size=1, max_size=4), QUEUES),
    st.tuples(st.just("remove"), st.lists(PATTERNS, min_size=1, max_size=4), QUEUES),
    st.tuples(st.just("find"), SUBJECTS, QUEUES),
    st.tuples(st.just("leaf"), st.lists(TOKENS, min_size=1, max_size=4), QUEUES),
)


def assert_whole_below(trie: Trie[str], patterns: set[bytes], tokens: list[bytes]) -> None:
    """What the trie says of all subjects that begin so, by what it says of some of them."""
    leaves = trie.whole_below(tokens)
    beyond = {p for p in patterns if p.count(b".") > len(tokens) or not p.endswith(b">")}
    partly = [p for p in beyond if overlaps(p, b".".join([*tokens, b">"]))]
    assert (leaves is None) == bool(partly)
    if leaves is not None:
        assert [leaf.pattern for leaf in leaves] == in_order(patterns, [*tokens, b"c"])


def in_order(patterns: set[bytes], subject: list[bytes]) -> list[bytes]:
    """Those that match, as a trie whose every token has a node comes upon them."""
    found: list[bytes] = []
    *above, last = subject
    heads: list[bytes] = [b""]
    for token in above:
        found += [head + b">" for head in heads if head + b">" in patterns]
        heads = [head + name + b"." for head in heads for name in (token, b"*")]
    for head in heads:
        found += [head + end for end in (b">", last, b"*") if head + end in patterns]
    return found


@given(st.lists(STEPS, max_size=30), st.booleans())
def test_it_finds_what_was_added_and_not_removed(
    steps: list[tuple[str, list[bytes], bytes]], together: bool
) -> None:
    trie: Trie[str] = Trie()
    there: set[tuple[bytes, bytes]] = set()
    for step, given_, queue in steps:
        if step == "add":
            if together:
                assert [pattern for pattern, _ in trie.add_all(given_, queue, "x")] == given_
            else:
                assert [trie.add(pattern, queue, "x").pattern for pattern in given_] == given_
            there |= {(pattern, queue) for pattern in given_}
        elif step == "remove":
            expected = [p for p in dict.fromkeys(given_) if (p, queue) in there]
            if together:
                entries = [(pattern, queue, "x") for pattern in given_]
                assert [pattern for pattern, _ in trie.remove_all(entries)] == expected
            else:
                removed = [trie.remove(pattern, queue, "x") for pattern in given_]
                assert [leaf.pattern for leaf in removed if leaf is not None] == expected
            there -= {(pattern, queue) for pattern in given_}
        elif step == "find":
            leaves, nodes = trie.walk(given_)
            trie.add_ends(nodes, given_, leaves)
            patterns = {pattern for pattern, _ in there}
            expected = in_order(patterns, given_)
            assert {p for p in patterns if matches(p, b".".join(given_))} == {*expected}
            assert [leaf.pattern for leaf in leaves] == expected
            assert_whole_below(trie, patterns, given_)
        else:
            leaf = trie.leaf(b".".join(given_))
            is_there = any(pattern == b".".join(given_) for pattern, _ in there)
            assert (leaf is not None and not leaf.is_bare) == is_there
    for pattern, queue in there:
        assert trie.remove(pattern, queue, "x") is not None
    assert trie.root.is_bare()  # nothing is left of what is gone


@pytest.mark.parametrize("queue", [b"", b"q"])
def test_neighbours_that_go_together_take_the_nodes_above_with_them(queue: bytes) -> None:
    trie: Trie[str] = Trie()
    patterns = [b"a.b.%d" % number for number in range(4)]
    for pattern in patterns:
        trie.add(pattern, queue, "x")
    trie.add(patterns[2], b"", "y")  # beside another one
    trie.add(patterns[3], b"p", "w")  # in another group
    trie.add(b"a.b.1.c", b"", "z")  # below another one
    removed = list(trie.remove_all([(pattern, queue, "x") for pattern in [*patterns, b"a.b.9"]]))
    assert [pattern for pattern, _ in removed] == patterns
    assert [leaf.is_bare for _, leaf in removed] == [True, True, False, False]
    rest = [(patterns[2], b"", "y"), (patterns[3], b"p", "w"), (b"a.b.1.c", b"", "z")]
    assert [p for p, _ in trie.remove_all(rest)] == [pattern for pattern, _, _ in rest]
    assert trie.root.is_bare()
    for pattern in patterns:
        trie.add(pattern, queue, "x")
    assert [p for p, _ in trie.remove_all([(p, queue, "x") for p in patterns])] == patterns
    assert trie.root.is_bare()


def test_a_pattern_that_is_alone_makes_no_node_until_its_last_token_decides() -> None:
    trie: Trie[str] = Trie()
    trie.add(b"a.b.c.d.e", b"", "x")
    assert isinstance(trie.root.literals[b"a"], Leaf)
    assert trie.walk([b"a", b"b", b"x", b"d", b"e"]) == ([], [])
    assert isinstance(trie.root.literals[b"a"], Leaf)
    leaves, nodes = trie.walk([b"a", b"b", b"c", b"d", b"e"])
    trie.add_ends(nodes, [b"a", b"b", b"c", b"d", b"e"], leaves)
    assert [leaf.pattern for leaf in leaves] == [b"a.b.c.d.e"]
    assert list(trie.root.literals[b"a"].literals) == [b"b"]


def test_a_last_star_is_found_without_the_nodes_below_and_gives_way_to_what_comes_there() -> None:
    trie: Trie[str] = Trie()

    def found(*tokens: bytes) -> list[bytes]:
        leaves, nodes = trie.walk([*tokens])
        trie.add_ends(nodes, [*tokens], leaves)
        return sorted(leaf.pattern for leaf in leaves)

    for pattern in (b"a.x", b"a.b.*", b"a.c.*.*"):
        trie.add(pattern, b"", "x")
    above = trie.root.literals[b"a"]
    assert found(b"a", b"b", b"c") == [b"a.b.*"]
    assert found(b"a", b"c", b"d", b"e") == [b"a.c.*.*"]
    assert found(b"a", b"c", b"d") == []
    assert isinstance(above, Node)
    assert isinstance(above.literals[b"b"], Leaf), "nothing branches there"
    assert isinstance(above.literals[b"c"], Leaf)
    assert found(b"a", b"b") == []
    assert found(b"a", b"b", b"c", b"d") == []
    assert isinstance(above.literals[b"b"], Leaf), "nor does it for whoever walks by"
    trie.add(b"a.b.c", b"", "x")
    assert found(b"a", b"b", b"c") == [b"a.b.*", b"a.b.c"]
    assert isinstance(above.literals[b"b"], Node)
