"""How far a query is behind its streams, published by the query itself.

Spark has no place for it: a Python source has no metrics in the progress report, and query listeners do not
exist in Spark Connect and in pipelines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import SplitResult

from ...api.times import format_time
from ...errors import ConfigurationError
from ...exposition import described
from ...web.pages import NUMBERS, Page, PageThread, plain
from ..options.source import LagRule
from .driver import Driver, Look, StreamLag

_METRICS: Final = (
    ("headrace_spark_messages_behind", "Messages stored and not yet committed by the query."),
    ("headrace_spark_seconds_behind", "Age of the oldest of them; 0 if there are none."),
    ("headrace_spark_committed_sequence", "The last stream sequence of the last committed batch."),
    ("headrace_spark_last_sequence", "The last sequence of the stream."),
    (
        "headrace_spark_messages_lost_total",
        "Messages removed before the query read them, at most, since its process began.",
    ),
)


class Lag:
    """Measures and publishes the lag of one query.

    Args:
        rule: where to.
        durable: names the query in what is published.
        drivers: of the query's streams.
        clock: monotonic seconds.

    Raises:
        ConfigurationError: the address of the metrics cannot be used.
    """

    def __init__(
        self,
        rule: LagRule,
        durable: str,
        drivers: Mapping[str, Driver],
        clock: Callable[[], float],
    ) -> None:
        self._rule = rule
        self._durable = durable
        self._drivers = drivers
        self._clock = clock
        self._due = clock()
        self._shown: dict[str, int] | None = None
        self._page = MetricsPage(rule.address) if rule.address else None

    @property
    def port(self) -> int:
        """Where the metrics are served; 0: nowhere."""
        return self._page.port if self._page else 0

    def show(self, looks: Mapping[str, Look]) -> None:
        """Publish what the streams have after the committed offsets, if it is time or the end is reached."""
        committed = {name: look.start.seq for name, look in looks.items()}
        caught_up = committed != self._shown and all(look.is_idle for look in looks.values())
        if self._clock() < self._due and not caught_up:
            return
        lags = [self._drivers[name].lag(look) for name, look in looks.items()]
        if self._page is not None:
            self._page.text = prometheus(self._durable, lags)
        if self._rule.subject:
            first = next(iter(self._drivers.values()))
            first.publish(self._rule.subject, document(self._durable, lags, time.time_ns()))
        self._shown, self._due = committed, self._clock() + self._rule.interval_s

    def close(self) -> None:
        """Stop serving metrics."""
        if self._page is not None:
            self._page.close()


def document(durable: str, lags: Sequence[StreamLag], now_ns: int) -> bytes:
    """The lag as JSON: of all streams together, and of each."""
    return json.dumps(
        {
            "at": format_time(now_ns),
            "durable": durable,
            "messages_behind": sum(lag.messages for lag in lags),
            "messages_lost": sum(lag.lost for lag in lags),
            "seconds_behind": round(max(lag.seconds for lag in lags), 3),
            "streams": {
                lag.stream: {
                    "committed_sequence": lag.committed,
                    "last_sequence": lag.last,
                    "messages_behind": lag.messages,
                    "messages_lost": lag.lost,
                    "seconds_behind": round(lag.seconds, 3),
                }
                for lag in lags
            },
        }
    ).encode()


class _Values(NamedTuple):
    messages: int
    seconds: float
    committed: int
    last: int
    lost: int


def prometheus(durable: str, lags: Iterable[StreamLag]) -> str:
    """The lag in Prometheus' text format. Names of streams and consumers need no escaping."""
    samples = [
        (
            f'{{stream="{lag.stream}",durable="{durable}"}}',
            _Values(lag.messages, round(lag.seconds, 3), lag.committed, lag.last, lag.lost),
        )
        for lag in lags
    ]
    lines = []
    for index, (name, meaning) in enumerate(_METRICS):
        lines += described(name, "counter" if name.endswith("_total") else "gauge", meaning)
        lines += [f"{name}{labels} {values[index]}" for labels, values in samples]
    return "\n".join(lines) + "\n"


class MetricsPage:
    """Serves ``text`` at ``/metrics`` from a thread of its own.

    Args:
        option, others: where the address stands, and who needs one of their own, for the error.
        more: what follows ``text``, made when it is asked for.
    """

    def __init__(
        self,
        address: tuple[str, int],
        option: str = "jetstream source: metricsAddress",
        others: str = "query",
        more: Callable[[], str] = lambda: "",
    ) -> None:
        self.text = ""
        self._more = more
        try:
            self._thread = PageThread(self._page, *address)
        except OSError as error:
            raise ConfigurationError(
                f"{option} {address[0]}:{address[1]} cannot be used: {error.strerror or error}; give each "
                f"{others} an address of its own"
            ) from error

    @property
    def port(self) -> int:
        return self._thread.port

    def close(self) -> None:
        """Stop serving."""
        self._thread.close()

    def _page(self, url: SplitResult) -> Page:
        if url.path != "/metrics":
            return plain(404, "metrics are at /metrics\n")
        return Page(200, NUMBERS, (self.text + self._more()).encode())
