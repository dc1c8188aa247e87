"""When a stream is to publish a message: the options of ``headrace pub`` that say so. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from ..shared.errors import Failure
from ..shared.units import DURATION, Parsed


def _moment(text: str) -> datetime:
    """A time that a person types. Raises ValueError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; accepted: 2026-11-22T10:30:00Z, '2026-11-22 10:30' (UTC)"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


SCHEDULE_OPTIONS: Final = (
    click.option(
        "--target", metavar="SUBJECT", default="", help="have the stream publish it there later"
    ),
    click.option(
        "--at", type=Parsed("time", _moment), default=None, metavar="TIME", help="at this time"
    ),
    click.option("--in", "within", type=DURATION, default=0.0, help="after so long"),
    click.option("--every", type=DURATION, default=0.0, help="again and again, at least 1s apart"),
    click.option(
        "--cron",
        metavar="FIELDS",
        default="",
        help="'30 6 * * *', '0 30 6 * * *' (seconds first), @daily, …",
    ),
    click.option(
        "--time-zone", metavar="NAME", default="", help="of --cron, as Europe/Berlin (UTC)"
    ),
)


@dataclass(frozen=True)
class Plan:
    """When, and where to.

    Attributes:
        target: the subject it is published to.
        at: once.
        every: again and again, seconds.
        cron: again and again, by fields; in ``time_zone``.
    """

    target: str
    at: datetime | None
    every: float
    cron: str
    time_zone: str

    @classmethod
    def of(
        cls,
        target: str,
        at: datetime | None,
        within: float,
        every: float,
        cron: str,
        time_zone: str,
        now: datetime | None = None,
    ) -> Plan | None:
        """What the options say; None if they say nothing. Raises Failure if they do not go together."""
        given = [
            name
            for name, value in (
                ("--at", at),
                ("--in", within),
                ("--every", every),
                ("--cron", cron),
            )
            if value
        ]
        if not target:
            if given or time_zone:
                raise Failure(
                    f"{(given or ['--time-zone'])[0]} needs --target: where it is published then"
                )
            return None
        if len(given) != 1:
            raise Failure("--target needs one of --at, --in, --every and --cron")
        if time_zone and not cron:
            raise Failure("--time-zone is of --cron; --at takes a time with its zone")
        if within:
            at = (now or datetime.now(UTC)) + timedelta(seconds=within)
        return cls(target, at, every, cron, time_zone)

    def arguments(self) -> dict[str, Any]:
        """For ``JetStream.schedule``."""
        return {
            "target": self.target,
            "at": self.at,
            "every": self.every,
            "cron": self.cron,
            "time_zone": self.time_zone,
        }

    def when(self) -> str:
        """In words."""
        if self.at is not None:
            return (
                f"at {self.at.astimezone(UTC).isoformat(timespec='seconds').replace('+00:00', 'Z')}"
            )
        if self.every:
            return f"every {self.every:g} s"
        return f"by {self.cron!r}{f' in {self.time_zone}' if self.time_zone else ''}"
