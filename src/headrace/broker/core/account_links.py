"""What accounts let each other see: exports and imports within one server.

An imported stream is a sink at the exporter that publishes into the importer. An imported service is a
sink at the importer that asks the exporter, with a reply subject of its own under ``_R_.``, and hands the
answer back. Who is there is decided by the account a message goes to: without a subscriber a sink declines.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ...clock import Clock
from ...subjects import is_subset
from ...transforms import SubjectTransform
from .account_options import Import
from .ports import Origin, Randomness, Sink

if TYPE_CHECKING:
    from .accounts import Account

__all__ = ["ANSWERS_MAX", "Links"]

ANSWERS_MAX: Final = 65_536  # requests of one exporter waiting for an answer; the oldest gets none
ANSWER_WITHIN_NS: Final = 120_000_000_000  # nats-server: DEFAULT_SERVICE_EXPORT_RESPONSE_THRESHOLD
_REPLY: Final = b"_R_."
_INFO: Final = b"Nats-Request-Info"


class _Asked(NamedTuple):
    """A request on its way: who waits for the answer, where, until when, and for how many."""

    account: Account
    reply: bytes
    until_ns: int
    many: bool


class Links:
    """The sinks between accounts; made anew whenever the configuration changes."""

    def __init__(self, clock: Clock, random: Randomness) -> None:
        self._clock = clock
        self._random = random
        self._sinks: list[tuple[Account, bytes, Sink]] = []
        self._asked: dict[Account, dict[bytes, _Asked]] = {}

    def configure(self, accounts: Iterable[Account]) -> None:
        """Connect these accounts as their checked options say, and no longer as before."""
        by_name = {account.name: account for account in accounts}
        for account, pattern, old in self._sinks:
            account.router.remove_sink(pattern, old)
        self._sinks.clear()
        for account in by_name.values():
            for wanted in account.options.imports:
                exporter = by_name[wanted.account]
                transform = wanted.transform()
                if wanted.kind == "stream":
                    sink: Sink = partial(_forward, account, transform)
                    self._add(exporter, wanted.subject, sink)
                else:
                    many = _answers_often(exporter, wanted)
                    self._listen_for_answers(exporter)
                    sink = partial(self._ask, account, exporter, transform, many)
                    self._add(account, wanted.pattern, sink)

    def _add(self, account: Account, pattern: bytes, sink: Sink) -> None:
        account.router.add_sink(pattern, sink)
        self._sinks.append((account, pattern, sink))

    def _listen_for_answers(self, exporter: Account) -> None:
        if exporter not in self._asked:
            self._asked[exporter] = {}
            exporter.router.add_sink(_REPLY + b">", partial(self._answer, self._asked[exporter]))

    def _ask(
        self,
        importer: Account,
        exporter: Account,
        transform: SubjectTransform,
        many: bool,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        origin: Origin | None,
    ) -> bool:
        """Send a request to the account that offers the service."""
        theirs = transform.apply(subject)
        if theirs is None:
            return False
        router = exporter.router
        route = router.find(theirs)
        if not (route.plain or route.groups or route.sinks):
            return False
        headers = _with_requester(headers, importer.name)
        asked = self._asked[exporter]
        ours = b""
        if reply:
            self._forget_old(asked)
            ours = _REPLY + self._token() + b"." + self._token()
            until_ns = self._clock.monotonic_ns() + ANSWER_WITHIN_NS
            asked[ours] = _Asked(importer, reply, until_ns, many)
        if router.deliver(route, theirs, ours, headers, payload, origin, 0):
            return True
        asked.pop(ours, None)
        return False

    def _answer(
        self,
        asked: dict[bytes, _Asked],
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        origin: Origin | None,
    ) -> bool:
        """Hand an answer to who asked."""
        found = asked.get(subject)
        if found is None or found.until_ns <= self._clock.monotonic_ns():
            return False
        if not found.many:
            del asked[subject]
        return found.account.router.publish(found.reply, reply, headers, payload) > 0

    def _forget_old(self, asked: dict[bytes, _Asked]) -> None:
        now_ns = self._clock.monotonic_ns()
        while asked:
            oldest = next(iter(asked))
            if asked[oldest].until_ns > now_ns and len(asked) < ANSWERS_MAX:
                return
            del asked[oldest]

    def _token(self) -> bytes:
        return b"%012x" % self._random.getrandbits(48)


def _forward(
    importer: Account,
    transform: SubjectTransform,
    subject: bytes,
    reply: bytes,
    headers: bytes,
    payload: bytes,
    origin: Origin | None,
) -> bool:
    """Bring a message of an imported stream into the importing account."""
    ours = transform.apply(subject)
    if ours is None:
        return False
    router = importer.router
    return router.deliver(router.find(ours), ours, reply, headers, payload, origin, 0) > 0


def _answers_often(exporter: Account, wanted: Import) -> bool:
    return any(
        export.many_answers
        for export in exporter.options.exports
        if export.kind == "service" and is_subset(wanted.subject, export.subject)
    )


def _with_requester(headers: bytes, account: str) -> bytes:
    """The headers with the name of the asking account, as a service gets them."""
    info = msgspec.json.encode({"acc": account})
    start = headers[:-2] if headers else b"NATS/1.0\r\n"
    return b"%b%b: %b\r\n\r\n" % (start, _INFO, info)
