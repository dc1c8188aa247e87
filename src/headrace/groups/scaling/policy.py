"""The bounds of an autoscaled group, the names it may use, and what was decided. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..errors import GroupConfigurationError
from ..record.names import check_member_name

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
