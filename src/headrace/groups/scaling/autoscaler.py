"""How many members a group should have, and who: decided from looks at it. Pure.

A group is behind by as many seconds as it would take to handle what waits, at the rate of the last looks. Too
far behind for some looks: one more member (or as many as are needed). Hardly behind for many looks: one
less, unless the rest would be too busy. What so many members can handle is learnt while the group is behind,
and remembered, so that a constant load ends in a constant number of members.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from ..watching.progress import GroupLag, rates
from .experience import Experience
from .policy import Decision, Policy, pool_of
from .situation import Choice, Situation

__all__ = ["Autoscaler", "Decision", "Policy", "pool_of"]

_CALM: Final = 0.5  # of the target: so little behind that a member may be too many
_NS: Final = 1_000_000_000


class Autoscaler:
    """Decides look by look. It changes nothing itself, and asks nobody.

    Args:
        pool: who may be added, and the first to be added first; the last is dropped first. Members with
            other names are left alone, but count.
    """

    def __init__(self, policy: Policy, pool: Sequence[str]) -> None:
        self.policy = policy
        self.pool = tuple(pool)
        self._looks: deque[GroupLag] = deque()  # since the members changed
        self._members: tuple[str, ...] | None = None
        self._changed_ns: int | None = None
        self._slow = 0
        self._calm: deque[float] = deque(maxlen=policy.down_looks)  # what arrived while it was calm
        self._experience = Experience(policy.memory_seconds)

    def decide(self, look: GroupLag, live: Collection[str] | None = None) -> Decision:
        """What to do after this look.

        Args:
            live: names under which an instance has joined; only these are added. None: not known, so any
                name of the pool may be.
        """
        self._remember(look)
        found = rates(self._looks[0], look)
        now = Situation(self.policy, look, found, self.pool, live)
        choice = now.within_bounds() or self._judge(now)
        described = now.described()
        return Decision(
            at_ns=look.at_ns,
            before=now.members,
            members=choice.members,
            reasons=(*([described] if described else []), *choice.reasons),
            lag=look.lag,
            arrived=None if found is None else found.arrived,
            handled=None if found is None else found.handled,
            behind_s=now.behind_s,
            limit=self._experience.limit(now.share(len(now.members) - 1), look.at_ns),
        )

    def _remember(self, look: GroupLag) -> None:
        """Keep a look, and forget those before a change of the members, and those too old for a rate."""
        members = tuple(each.member for each in look.members if each.listed)
        if members != self._members:
            if self._members is not None:
                self._changed_ns = look.at_ns
            self._members = members
            self._looks.clear()
            self._count_from_zero()
        self._looks.append(look)
        horizon = look.at_ns - round(self.policy.target_seconds * _NS)
        while len(self._looks) > self.policy.up_looks + 1 and self._looks[1].at_ns <= horizon:
            self._looks.popleft()

    def _judge(self, now: Situation) -> Choice:
        policy, found = self.policy, now.rates
        if now.look.lag is None:
            return now.hold("how much waits is not known")
        if found is None or now.behind_s is None or now.helped_s is None:
            return now.hold("a rate takes two looks")
        left = self._cooldown_left(now.look)
        if left > 0:
            self._count_from_zero()
            return now.hold(f"the members changed a moment ago: no change for {left:.0f} s")
        self._count(now.behind_s, now.helped_s, found.arrived)
        if self._slow:
            if self._slow < policy.up_looks:
                return now.hold(f"too far behind, {self._slow} of {policy.up_looks} looks")
            if found.handled:
                share = now.share(len(now.members))
                self._experience.behind(share, found.handled, now.look.at_ns)
            return now.more()
        if now.behind_s > policy.target_seconds:
            return now.hold(
                "more members would not help: what waits is in partitions that have a member for "
                f"themselves ({now.crowded()})"
            )
        self._experience.keeping_up()
        if not self._calm or len(now.members) <= now.low:
            return now.hold("as it should be")
        if len(self._calm) < policy.down_looks:
            return now.hold(f"hardly behind, {len(self._calm)} of {policy.down_looks} looks")
        return now.fewer(self._experience, max(self._calm))

    def _count(self, behind_s: float, helped_s: float, arrived: float) -> None:
        target = self.policy.target_seconds
        self._slow = self._slow + 1 if helped_s > target else 0
        if behind_s <= target * _CALM:
            self._calm.append(arrived)
        else:
            self._calm.clear()

    def _count_from_zero(self) -> None:
        self._slow = 0
        self._calm.clear()

    def _cooldown_left(self, look: GroupLag) -> float:
        if self._changed_ns is None:
            return 0.0
        return self.policy.cooldown_seconds - (look.at_ns - self._changed_ns) / _NS
