"""What a client may publish and subscribe to, and which answers it may give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from ....clock import Clock
from ....subjects import SubjectFilter, check_pattern, is_subset, overlaps

QueueRule: TypeAlias = tuple[bytes, bytes]
"""Patterns of subjects, and of names of queue groups in which they may, or may not, be subscribed to."""


class ResponsePermission(msgspec.Struct, frozen=True):
    """How often, and for how long, a client may answer a request, whatever else is denied."""

    messages_max: int
    expires_ns: int


class Permissions(msgspec.Struct, frozen=True):
    """What an identity may publish and subscribe to; ``None``, and no rule, allow everything.

    ``responses`` additionally permits answers to the requests an identity receives.
    """

    publish_allow: SubjectFilter | None = None
    publish_deny: SubjectFilter | None = None
    subscribe_allow: SubjectFilter | None = None
    subscribe_deny: SubjectFilter | None = None
    responses: ResponsePermission | None = None
    queues_allow: tuple[QueueRule, ...] = ()
    """Those for a subject say in which groups it may be subscribed to, and ``subscribe_allow`` does not."""
    queues_deny: tuple[QueueRule, ...] = ()
    """What is denied in some groups, beside ``subscribe_deny``."""

    def may_publish(self, subject: bytes) -> bool:
        allow, deny = self.publish_allow, self.publish_deny
        if deny is not None and deny.matches(subject):
            return False
        return allow is None or allow.matches(subject)

    def may_subscribe(self, pattern: bytes, queue: bytes = b"") -> bool:
        """Whether ``pattern`` may be subscribed to: all of it is allowed, and not all of it denied."""
        denied = _covers(self.subscribe_deny, pattern)
        if denied or (queue and _spoken_of(self.queues_deny, pattern, queue)):
            return False
        if queue:
            allowed = _spoken_of(self.queues_allow, pattern, queue)
            if allowed is not None:
                return allowed
        if self.subscribe_allow is None:
            return not self.queues_allow
        return _covers(self.subscribe_allow, pattern)

    def denied_within(self, pattern: bytes, queue: bytes = b"") -> SubjectFilter | None:
        """What is to be kept from a subscription that is permitted; None if nothing."""
        plain = () if self.subscribe_deny is None else self.subscribe_deny.patterns
        grouped = [rule for rule, group in self.queues_deny if queue and _is_of(queue, group)]
        denied = [rule for rule in (*plain, *grouped) if overlaps(pattern, rule)]
        return SubjectFilter(denied) if denied else None


def read_rules(entries: Iterable[str]) -> tuple[SubjectFilter | None, tuple[QueueRule, ...]]:
    """Subjects, and subjects with the name of a queue group behind a blank.

    Raises InvalidSubjectError.
    """
    subjects: list[bytes] = []
    queues: list[QueueRule] = []
    for entry in entries:
        words = entry.encode().split()
        if len(words) != 2:
            subjects.append(entry.encode())
            continue
        queues.append((check_pattern(words[0]), check_pattern(words[1])))
    return SubjectFilter(subjects) if subjects else None, tuple(queues)


def written(subjects: SubjectFilter | None, queues: Iterable[QueueRule] = ()) -> list[str]:
    """The entries ``read_rules`` makes these of."""
    plain = [] if subjects is None else [pattern.decode() for pattern in subjects.patterns]
    return plain + [f"{pattern.decode()} {queue.decode()}" for pattern, queue in queues]


def _covers(rules: SubjectFilter | None, pattern: bytes) -> bool:
    return rules is not None and any(is_subset(pattern, rule) for rule in rules.patterns)


def _spoken_of(rules: Iterable[QueueRule], pattern: bytes, queue: bytes) -> bool | None:
    """Whether a rule for the subject has the group; None if no rule is for the subject."""
    groups = [group for rule, group in rules if is_subset(pattern, rule)]
    if not groups:
        return None
    return any(_is_of(queue, group) for group in groups)


def _is_of(queue: bytes, group: bytes) -> bool:
    """Whether a rule for ``group`` speaks of a queue group of this name."""
    return queue == group or is_subset(queue, group)


EXPECTED_MAX: Final = 65_536  # one more request: the oldest can no longer be answered


class ExpectedAnswers:
    """The reply subjects of the requests one client received and may still answer."""

    __slots__ = ("_clock", "_permission", "_replies")

    def __init__(self, permission: ResponsePermission, clock: Clock) -> None:
        self._permission = permission
        self._clock = clock
        # How many answers are left, and until when. All expire after the same time: oldest first.
        self._replies: dict[bytes, tuple[int, int]] = {}

    def expect(self, reply: bytes) -> None:
        """A request with this reply subject was delivered."""
        now_ns = self._clock.monotonic_ns()
        replies = self._replies
        replies.pop(reply, None)
        while replies:
            oldest = next(iter(replies))
            if replies[oldest][1] > now_ns and len(replies) < EXPECTED_MAX:
                break
            del replies[oldest]
        replies[reply] = (self._permission.messages_max, now_ns + self._permission.expires_ns)

    def use(self, subject: bytes) -> bool:
        """Whether a message to ``subject`` is an expected answer. It is counted as given."""
        found = self._replies.get(subject)
        if found is None:
            return False
        left, until_ns = found
        if until_ns <= self._clock.monotonic_ns():
            del self._replies[subject]
            return False
        if left > 1:
            self._replies[subject] = (left - 1, until_ns)
        else:
            del self._replies[subject]
        return True
