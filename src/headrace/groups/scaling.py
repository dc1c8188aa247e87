"""How many members a group should have, and who: decided from looks at it. Pure.

A group is behind by as many seconds as it would take to handle what waits, at the rate of the last looks. Too
far behind for some looks: one more member (or as many as are needed). Hardly behind for many looks: one
less, unless the rest would be too busy. What so many members can handle is learnt while the group is behind,
and remembered, so that a constant load ends in a constant number of members.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from .errors import GroupConfigurationError
from .progress import GroupLag, MemberLag, Rates, rates
from .record.names import check_member_name

__all__ = ["Autoscaler", "Decision", "Policy", "pool_of"]


_STEPS: Final = ("one", "proportional")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a group gets more members, and when fewer.

    Attributes:
        minimum, maximum: bounds of the number of members; 0 as ``maximum`` is the number of partitions,
            which is never exceeded.
        target_seconds: how far the group may be behind.
        up_looks: after this number of looks in a row that find it further behind, it grows.
        down_looks: after this number in a row that find it at most half as far behind, it shrinks.
        cooldown_seconds: how long nothing is done after a change of the members, whoever made it.
        busy: how much of what they can handle the members that remain may be asked for, from 0 to 1.
        memory_seconds: for how long it is remembered that a number of members was too small; twice as
            long each time it turns out again, up to a day.
        step: ``one`` member at a time, or ``proportional``: as many as the load asks for.
    """

    minimum: int = 1
    maximum: int = 0
    target_seconds: float = 30.0
    up_looks: int = 3
    down_looks: int = 30
    cooldown_seconds: float = 60.0
    busy: float = 0.8
    memory_seconds: float = 900.0
    step: Literal["one", "proportional"] = "one"

    def __post_init__(self) -> None:
        accepted = (
            ("minimum", self.minimum >= 1, "1 or more"),
            ("maximum", self.maximum == 0 or self.maximum >= self.minimum, "the minimum or more"),
            ("target_seconds", self.target_seconds > 0, "more than 0"),
            ("up_looks", self.up_looks >= 1, "1 or more"),
            ("down_looks", self.down_looks >= 1, "1 or more"),
            ("cooldown_seconds", self.cooldown_seconds >= 0, "0 or more"),
            ("busy", 0 < self.busy <= 1, "more than 0, at most 1"),
            ("memory_seconds", self.memory_seconds >= 0, "0 or more"),
            ("step", self.step in _STEPS, "'one' and 'proportional'"),
        )
        for name, is_accepted, words in accepted:
            if not is_accepted:
                raise GroupConfigurationError(
                    f"{name} is {getattr(self, name)!r}; accepted: {words}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, and why.

    Attributes:
        at_ns: the time of the look.
        before, members: who the members are, and who they should be.
        reasons: why, in words.
        lag: messages not handled yet.
        arrived, handled: per second; None before there were two looks.
        behind_s: seconds of work that wait; None where it is not known, infinite if nothing is handled.
        limit: messages per second that one member less could handle at most, as far as that was seen.
    """

    at_ns: int
    before: tuple[str, ...]
    members: tuple[str, ...]
    reasons: tuple[str, ...]
    lag: int | None = None
    arrived: float | None = None
    handled: float | None = None
    behind_s: float | None = None
    limit: float | None = None

    @property
    def added(self) -> tuple[str, ...]:
        """Who should become a member."""
        return tuple(name for name in self.members if name not in self.before)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Who should not be a member any more."""
        return tuple(name for name in self.before if name not in self.members)

    @property
    def action(self) -> Literal["up", "down", "hold"]:
        """What it comes to."""
        return "up" if self.added else "down" if self.dropped else "hold"


def pool_of(texts: Sequence[str], count: int) -> tuple[str, ...]:
    """The names that may become members, in the order in which they do.

    Args:
        texts: names, or patterns: ``worker-{}`` stands for worker-0, worker-1, ….
        count: how many names a pattern stands for.

    Raises GroupConfigurationError.
    """
    found: dict[str, None] = {}
    for text in texts:
        several = [text.replace("{}", str(number)) for number in range(count)]
        found.update(dict.fromkeys(several if "{}" in text else [text]))
    for name in found:
        check_member_name(name)
    if not found:
        raise GroupConfigurationError(
            "the pool is empty; accepted are names and patterns: worker-{}"
        )
    return tuple(found)


_KEPT_MAX_S: Final = 86_400.0
_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _Seen:
    handled: float
    at_ns: int
    kept_s: float


class Experience:
    """The rate that a group was limited to, by the most partitions that one of its members owned.

    Args:
        kept_s: how long it is remembered at first.
    """

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._seen: dict[int, _Seen] = {}
        self._learning = 0  # of which share, while the group is behind

    def behind(self, share: int, handled: float, now_ns: int) -> None:
        """The group is too far behind, while it can go on with this much per second."""
        before = self._seen.get(share)
        if before is None:
            kept_s = self._kept_s
        elif self._learning == share:
            kept_s = before.kept_s
        else:
            kept_s = min(2 * before.kept_s, max(_KEPT_MAX_S, self._kept_s))
        self._seen[share] = _Seen(handled, now_ns, kept_s)
        self._learning = share

    def keeping_up(self) -> None:
        """The group is not behind any more: when it is again, that will be another time."""
        self._learning = 0

    def limit(self, share: int, now_ns: int) -> float | None:
        """What the group can handle at most when one member owns so many partitions: not more than when
        it owned fewer. None: that was never seen, or is forgotten."""
        known = [
            seen.handled
            for smaller, seen in self._seen.items()
            if smaller <= share and now_ns - seen.at_ns <= seen.kept_s * _NS
        ]
        return min(known, default=None)


class Choice(NamedTuple):
    """Who the members should be, and why."""

    members: tuple[str, ...]
    reasons: tuple[str, ...]


class Situation:
    """What was seen in one look.

    Args:
        rates: since an earlier look; None if there was none.
        pool: who may become a member.
        live: names with an instance; None: not known.

    Attributes:
        low, high: bounds of the number of members: of the policy, the partitions and the names.
        working: members that have partitions and a consumer.
        behind_s: seconds of work that wait; None where it is not known, infinite if nothing is handled.
        helped_s: the same, without what more members could not help with: partitions that have a member
            for themselves.
    """

    def __init__(
        self,
        policy: Policy,
        look: GroupLag,
        rates: Rates | None,
        pool: Sequence[str],
        live: Collection[str] | None,
    ) -> None:
        self.look = look
        self.rates = rates
        self.members = tuple(each.member for each in look.members if each.listed)
        self._policy = policy
        self._pool = pool
        self._live = live
        room = len(look.partitions)
        named = len({*self.members, *pool})
        self.high = min(policy.maximum or room, room, named)
        self.low = min(policy.minimum, self.high)
        self.working = sum(1 for each in look.members if each.partitions and each.consumers)
        self.behind_s = self._behind(look.lag, look.members)
        sharing = [each for each in look.members if len(each.partitions) != 1]
        self.helped_s = self._behind(self._shared_lag(), sharing)

    def _behind(self, lag: float | None, members: Sequence[MemberLag]) -> float | None:
        """How far the group is, or the one of ``members`` that is furthest.

        A member that handles nothing is left out: it is stuck, or gone.
        """
        if lag is None or self.rates is None:
            return None
        if lag <= self.working:
            return 0.0  # a message with each member is work, and does not wait
        handled, of_member = self.rates.handled, self.rates.by_member
        behind = lag / handled if handled else math.inf
        for each in members:
            if each.lag and each.lag > 1 and of_member.get(each.member):
                behind = max(behind, each.lag / of_member[each.member])
        return behind

    def _shared_lag(self) -> float | None:
        """What waits with members who could give a partition away."""
        look = self.look
        if look.lag is None:
            return None
        alone = sum(each.lag or 0 for each in look.members if len(each.partitions) == 1)
        here = look.group_lag or 0
        return look.lag * (1 - min(1.0, alone / here)) if here else float(look.lag)

    @property
    def sustained(self) -> float:
        """Messages per second that the members could go on with, as what comes is divided among them now.

        While some work off what waits for them, a group handles more than that: who is furthest behind
        decides.
        """
        assert self.rates is not None
        rates = self.rates
        able = rates.handled
        for each in self.look.members:
            done, came = rates.by_member.get(each.member), rates.for_member.get(each.member)
            if done and came and (each.lag or 0) / done > self._policy.target_seconds:
                able = min(able, rates.arrived * done / came)
        return able

    def share(self, members: int) -> int:
        """The most partitions that one of so many members owns."""
        return -(-len(self.look.partitions) // max(1, members))

    # What is said

    def hold(self, *reasons: str) -> Choice:
        """No change."""
        return Choice(self.members, reasons)

    def described(self) -> str:
        """The numbers; "" if they are not known."""
        if self.rates is None or self.behind_s is None:
            return ""
        behind = "for ever" if math.isinf(self.behind_s) else f"{self.behind_s:.1f} s"
        return (
            f"{self.look.lag} wait, {self.rates.arrived:.1f}/s come, {self.rates.handled:.1f}/s are "
            f"handled: behind {behind} (target {self._policy.target_seconds:g} s)"
        )

    def crowded(self) -> str:
        """The partitions that have a member for themselves, and in which something waits."""
        alone = [each.partitions[0] for each in self.look.members if len(each.partitions) == 1]
        return ", ".join(str(n) for n in sorted(alone) if self.look.partitions[n].lag != 0)

    # What is done

    def within_bounds(self) -> Choice | None:
        """What the bounds ask for, whatever the load."""
        count = len(self.members)
        if count < self.low:
            return self._grown(self.low, f"fewer than {self.low} members")
        if count > self.high:
            return self._shrunk(
                self.high, f"more than {self.high} members may not be, or have no work"
            )
        return None

    def more(self) -> Choice:
        """Grow, because the group is too far behind."""
        assert self.rates is not None
        count = len(self.members)
        if count >= self.high:
            return self.hold(f"too far behind, but {self.high} members are the most there may be")
        if not self.rates.handled:
            if self._live is None or any(each.is_live for each in self.look.members):
                return self.hold(
                    "nothing at all is handled: members are missing or stuck, not too few"
                )
            return self._grown(count + 1, "no member has an instance")
        wanted = count + 1
        why = f"too far behind for {self._policy.up_looks} looks"
        if self._policy.step == "proportional":
            one = max(self.rates.by_member.values(), default=self.rates.handled)
            load = self.rates.arrived + (self.look.lag or 0) / self._policy.target_seconds
            able = one * self._policy.busy * len(self.look.partitions)
            while wanted < self.high and load * self.share(wanted) > able:
                wanted += 1
            why += f"; the load asks for {wanted} members, as one handles {one:.1f}/s"
        return self._grown(wanted, why)

    def fewer(self, experience: Experience, arrived: float) -> Choice:
        """Shrink, because the group is hardly behind, if the rest can handle what ``arrived``."""
        count = len(self.members)
        fewest = self.low if self._policy.step == "proportional" else count - 1
        wanted, limit = count, None
        while wanted > fewest:
            limit = experience.limit(self.share(wanted - 1), self.look.at_ns)
            if limit is None and wanted < count:
                break  # one at a time into what is not known
            if limit is not None and arrived > limit * self._policy.busy:
                break
            wanted -= 1
        if wanted == count:
            return self.hold(
                f"{count - 1} members would be too busy: they handled {limit:.1f}/s at most, and up to "
                f"{arrived:.1f}/s came"
            )
        return self._shrunk(wanted, f"hardly behind for {self._policy.down_looks} looks")

    def _grown(self, count: int, why: str) -> Choice:
        free = [name for name in self._pool if name not in self.members]
        ready = free if self._live is None else [name for name in free if name in self._live]
        added = ready[: count - len(self.members)]
        if not added:
            lack = "has an instance" if free else "is left"
            return self.hold(why, f"but no other name of the pool {lack}")
        return Choice((*self.members, *added), (why,))

    def _shrunk(self, count: int, why: str) -> Choice:
        order = [name for name in self._pool if name in self.members]
        dropped = order[max(0, len(order) - (len(self.members) - count)) :]
        if not dropped:
            return self.hold(why, "but no member is one of the pool")
        return Choice(tuple(name for name in self.members if name not in dropped), (why,))


_CALM: Final = 0.5  # of the target: so little behind that a member may be too many


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
                self._experience.behind(share, now.sustained, now.look.at_ns)
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
