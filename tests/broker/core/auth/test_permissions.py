"""What one may subscribe to; the rules for queue groups were seen on nats-server 2.15.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.auth.permissions import Permissions, read_rules, written
from headrace.errors import InvalidSubjectError


def granted(allow: list[str], deny: list[str]) -> Permissions:
    allowed, queues_allow = read_rules(allow)
    denied, queues_deny = read_rules(deny)
    return Permissions(
        subscribe_allow=allowed,
        subscribe_deny=denied,
        queues_allow=queues_allow,
        queues_deny=queues_deny,
    )


@pytest.mark.parametrize(
    ("allow", "deny", "asked", "may"),
    [
        (["foo", "foo v1.*"], [], "foo", True),
        (["foo", "foo v1.*"], [], "foo q", False),  # the rules for groups count, where there are
        (["foo", "foo v1.*"], [], "foo v1.x", True),
        (["foo", "foo v1.*"], [], "foo v1.*", True),
        (["foo", "foo v1.*"], [], "foo v1.x.y", False),
        (["foo", "foo v1.*"], [], "foo >", False),
        (["foo"], [], "foo q", True),
        (["foo q"], [], "foo", False),
        (["foo q"], [], "foo q", True),
        (["foo q"], [], "bar q", False),
        (["foo *"], [], "foo *", True),
        (["a.> q"], [], "a.* q", True),
        (["a.> q"], [], "> q", False),
        ([], ["foo q"], "foo", True),
        ([], ["foo q"], "foo q", False),
        ([], ["foo q"], "foo z", True),
        ([], ["foo", "foo q"], "foo z", False),
        ([], ["*.x v1.>"], "f.x v1.a.b", False),
        ([], ["*.x v1.>"], "> v1.a", True),
        (["a.> q"], ["a.b q"], "a.b q", False),
        (["a.> q"], ["a.b q"], "a.c q", True),
    ],
)
def test_rules_for_groups_count_before_those_without(
    allow: list[str], deny: list[str], asked: str, may: bool
) -> None:
    pattern, _, queue = asked.encode().partition(b" ")
    assert granted(allow, deny).may_subscribe(pattern, queue) is may


@given(st.lists(st.sampled_from(["a", "a.*", "b.>", "a q", "a.* v.*", "b.> >"]), unique=True))
def test_rules_are_written_as_they_are_read(entries: list[str]) -> None:
    assert sorted(written(*read_rules(entries))) == sorted(entries)


@pytest.mark.parametrize("entry", ["a..b", "a q r", "a q..r", "a. q", ""])
def test_what_is_no_rule_is_refused(entry: str) -> None:
    with pytest.raises(InvalidSubjectError):
        read_rules(["ok", entry])
