"""What is wrong at the server, as ``headrace doctor`` says it, of the newest look.

Streams and consumers are judged by what the look has seen: nothing is asked. Groups are asked about now and
then, while somebody reads the alerts.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from ..api.consumers import ConsumerInfo
from ..client.jetstream_context import JetStream
from ..doctor.groups import look_at_groups
from ..errors import HeadraceError
from ..findings.consumers import judge_consumer
from ..findings.finding import Finding, Findings
from ..findings.pipelines import judge_pipeline
from ..findings.streams import judge_stream
from .watcher import Watcher

ALERTS_MAX: Final = 200
GROUPS_MAX: Final = 100  # of each kind
GROUPS_EVERY_S: Final = 15.0
_AT_ONCE: Final = 200  # streams and consumers judged between two turns of the loop
_ORDER: Final = {"problem": 0, "note": 1, "ok": 2}


class Alerts:
    """What is wrong, found once for each look, however many browsers ask.

    Args:
        clock: monotonic seconds.
    """

    def __init__(
        self, js: JetStream, watcher: Watcher, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._js, self._watcher, self._clock = js, watcher, clock
        self._lock = asyncio.Lock()
        self._number = -1
        self._found: list[Finding] = []
        self._groups: list[Finding] = []
        self._groups_at: float | None = None

    async def document(self) -> dict[str, Any]:
        """Problems first, then what is worth knowing; at most ``ALERTS_MAX``, and how many there are."""
        found = await self.found()
        return {
            "alerts": Findings(found[:ALERTS_MAX]).document(),
            "problems": sum(each.grade == "problem" for each in found),
            "notes": sum(each.grade == "note" for each in found),
            "unseen": self._watcher.look.unseen,
            "error": self._watcher.error,
        }

    async def found(self) -> list[Finding]:
        """The findings of the newest look, problems first."""
        async with self._lock:
            if self._watcher.number != self._number:
                number = self._watcher.number
                self._found = await self._of_look()
                self._number = number
            if self._groups_at is None or self._clock() - self._groups_at >= GROUPS_EVERY_S:
                self._groups = await self._of_groups()
                self._groups_at = self._clock()
            found = [each for each in (*self._found, *self._groups) if each.grade != "ok"]
        return sorted(found, key=lambda each: _ORDER[each.grade])

    async def _of_look(self) -> list[Finding]:
        """Of a stream whose consumers were too many to look at nothing is said."""
        look, now, findings = self._watcher.look, datetime.now(UTC), Findings()
        consumers: defaultdict[str, list[ConsumerInfo]] = defaultdict(list)
        for (stream, _), info in look.consumers.items():
            consumers[stream].append(info)
        for number, (name, stream_info) in enumerate(look.streams.items()):
            if consumers[name] or not stream_info.state.consumer_count:
                judge_stream(findings, stream_info, consumers[name])
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        for number, info in enumerate(look.consumers.values()):
            judge_consumer(findings, info, now)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        for record in look.pipelines.values():
            judge_pipeline(findings, record, now.timestamp())
        return findings.found

    async def _of_groups(self) -> list[Finding]:
        findings = Findings()
        try:
            await look_at_groups(findings, self._js, GROUPS_MAX)
        except HeadraceError as error:
            findings.note("groups", f"they could not be looked at: {error or type(error).__name__}")
        return findings.found
