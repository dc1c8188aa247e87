"""One look at a group, with the numbers that a change of its members is decided by. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ..watching.progress import GroupLag, MemberLag, Rates
from .experience import Experience
from .policy import Policy


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
