"""The options of publishing how far a query is behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .table import Option
from .values import RefusedError, seconds, subject


def parse_address(value: str) -> tuple[str, int]:
    """A host and a port. Raises RefusedError: it is none; the text says what is accepted."""
    found = re.fullmatch(r"(?:\[?([^\[\]]+)\]?:)?(\d{1,5})", value.strip())
    if found is None or int(found[2]) > 65535:
        raise RefusedError("a port, or host:port such as 0.0.0.0:9464")
    return found[1] or "127.0.0.1", int(found[2])


# fmt: off
LAG_OPTIONS: Final[tuple[Option, ...]] = (
    Option("lagSubject", "",
        "Publish on this subject, as JSON, how far the query is behind; $KV.<bucket>.<key> keeps the latest "
        "in a bucket. Streaming only.", subject),
    Option("metricsAddress", "",
        "Serve the same as Prometheus metrics at http://<host:port>/metrics, from the query's process on the "
        "driver; a port alone is one of 127.0.0.1. Streaming only.", parse_address),
    Option("lagInterval", "1s",
        "How often, at most, the lag is measured; in any case when the query has caught up.", seconds),
)
# fmt: on


class LagRule(NamedTuple):
    """Where a query publishes its lag; nowhere if both are empty."""

    subject: str = ""
    address: tuple[str, int] | None = None
    interval_s: float = 1.0

    def __bool__(self) -> bool:
        return bool(self.subject or self.address)


def lag_of(values: Mapping[str, Any]) -> LagRule:
    """The rule of collected options."""
    return LagRule(values["lagSubject"], values["metricsAddress"] or None, values["lagInterval"])
