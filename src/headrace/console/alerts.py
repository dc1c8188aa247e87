"""Alerts of what is wrong in the newest look, and in the job service, as ``headrace doctor`` says it.

Streams and consumers are judged by what the look has seen: nothing is asked. Groups, the account and the job
service are asked about now and then, while somebody reads the alerts.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

from ..api.consumers import ConsumerInfo
from ..client.jetstream_context import JetStream
from ..doctor import look_at_groups
from ..errors import HeadraceError
from ..findings.account import judge_account
from ..findings.consumers import judge_consumer
from ..findings.finding import Finding, Findings
from ..findings.pipelines import judge_pipeline
from ..findings.streams import judge_stream
from .answers import RefusedError
from .watcher import Watcher

ALERTS_MAX: Final = 200
GROUPS_MAX: Final = 100  # of each kind
GROUPS_EVERY_S: Final = 15.0
_AT_ONCE: Final = 200  # streams and consumers judged between two turns of the loop
_ORDER: Final = {"problem": 0, "note": 1, "ok": 2}


class Alerts:
    """Problems, found once for each look, however many browsers ask.

    Args:
        clock: monotonic seconds.
        jobs: looks at the job service (raises RefusedError); None without one.
    """

    def __init__(
        self,
        js: JetStream,
        watcher: Watcher,
        clock: Callable[[], float] = time.monotonic,
        jobs: Callable[[Findings], Awaitable[None]] | None = None,
    ) -> None:
        self._js, self._watcher, self._clock, self._jobs = js, watcher, clock, jobs
        self._lock = asyncio.Lock()
        self._number = -1
        self._found: list[Finding] = []
        self._asked: list[Finding] = []
        self._asked_at: float | None = None

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
            if self._asked_at is None or self._clock() - self._asked_at >= GROUPS_EVERY_S:
                self._asked = [*await self._of_groups(), *await self._of_jobs()]
                self._asked_at = self._clock()
            found = [each for each in (*self._found, *self._asked) if each.grade != "ok"]
        return sorted(found, key=lambda each: _ORDER[each.grade])

    async def _of_look(self) -> list[Finding]:
        """Judge a look. Of a stream whose consumers were too many to look at, nothing is said."""
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
            judge_account(findings, await self._js.account_info())
            await look_at_groups(findings, self._js, GROUPS_MAX)
        except HeadraceError as error:
            findings.note("groups", f"they could not be looked at: {error or type(error).__name__}")
        return findings.found

    async def _of_jobs(self) -> list[Finding]:
        findings = Findings()
        if self._jobs is None:
            return []
        try:
            await self._jobs(findings)
        except RefusedError as error:
            mend = "headrace jobs serve    and see what the console's log says"
            return [Finding("problem", "jobs", error.text, mend, name="jobs-unreachable")]
        return findings.found
