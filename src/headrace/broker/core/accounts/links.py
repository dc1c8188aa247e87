"""Exports and imports between the accounts of one server.

An imported stream is a sink at the exporter that publishes into the importer; it also tells who would
receive there what is sent to an inbox here, and whether somebody listens. An imported service is a sink at
the importer that asks the exporter, with a reply subject of its own under ``_R_.``, and hands the answer
back. The account a message goes to decides whether anybody is there: without a subscriber the sink
declines.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....clock import Clock
from ....subjects import is_subset
from ....transforms import SubjectTransform
from ..jetstream.headers import FAST
from ..net.router import Route
from ..net.subscription import SinkTarget
from ..options import Import
from ..ports import Origin, Randomness, Sink, Target, Watch
from ..server_headers import with_requester

if TYPE_CHECKING:
    from ..net.session import HostedAccount

ANSWERS_MAX: Final = 65_536  # requests of one exporter waiting for an answer; the oldest gets none
ANSWER_WITHIN_NS: Final = 120_000_000_000  # nats-server: DEFAULT_SERVICE_EXPORT_RESPONSE_THRESHOLD
_REPLY: Final = b"_R_."
_FAST_TOKENS: Final = 6  # of the reply of a fast batch's message, behind its prefix


class _Asked(NamedTuple):
    """A request on its way: who waits for the answer, where, until when, and for how many."""

    account: HostedAccount
    reply: bytes
    until_ns: int
    many: bool


class _OnItsWay(NamedTuple):
    """A request while it is handed over: through another import it stays the same one."""

    headers: bytes
    who: dict[str, Any]


class Links:
    """The sinks between accounts; made anew whenever the configuration changes."""

    def __init__(self, clock: Clock, random: Randomness) -> None:
        self._clock = clock
        self._random = random
        self._sinks: list[tuple[HostedAccount, bytes, Sink]] = []
        self._asked: dict[HostedAccount, dict[bytes, _Asked]] = {}
        self._on_its_way: _OnItsWay | None = None

    def configure(self, accounts: Iterable[HostedAccount]) -> None:
        """Replace all links by those that the checked options of these accounts describe."""
        by_name = {account.name: account for account in accounts}
        for account, pattern, old in self._sinks:
            account.router.remove_sink(pattern, old)
        self._sinks.clear()
        streams: dict[HostedAccount, list[tuple[bytes, _Forward]]] = {}
        for account in by_name.values():
            for wanted in account.options.imports:
                exporter = by_name[wanted.account]
                transform = wanted.transform()
                if wanted.kind == "stream":
                    found = wanted.subject, _Forward(account, transform)
                    streams.setdefault(exporter, []).append(found)
                else:
                    many = _answers_often(exporter, wanted)
                    self._listen_for_answers(exporter)
                    sink = partial(self._ask, account, exporter, wanted, transform, many)
                    self._add(account, wanted.pattern, sink)
        for account in by_name.values():
            exported = streams.get(account, ())
            # First, so that an import never passes for a listener of its own.
            account.router.watch_elsewhere([forward for _, forward in exported])
            for pattern, forward in exported:
                self._add(account, pattern, forward)
            account.router.imported_from = [
                by_name[wanted.account].router
                for wanted in account.options.imports
                if wanted.kind == "stream"
            ]

    def _add(self, account: HostedAccount, pattern: bytes, sink: Sink) -> None:
        account.router.add_sink(pattern, sink)
        self._sinks.append((account, pattern, sink))

    def _listen_for_answers(self, exporter: HostedAccount) -> None:
        if exporter not in self._asked:
            exporter.router.answers_others = True
            self._asked[exporter] = {}
            answers = _Answers(self._asked[exporter], self._clock)
            exporter.router.add_sink(_REPLY + b">", answers)

    def _ask(
        self,
        importer: HostedAccount,
        exporter: HostedAccount,
        wanted: Import,
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
        route = _without_imports(router.find(theirs))
        if not (route.plain or route.groups or route.sinks):
            return False
        who = self._who(importer, wanted, headers, origin)
        headers = with_requester(headers, who)
        asked = self._asked[exporter]
        ours = b""
        if reply:
            self._forget_old(asked)
            ours = _REPLY + self._token() + b"." + self._token()
            if reply.endswith(FAST):  # it says what the message is, and may be answered twice
                ours, many = b".".join([ours, *reply.split(b".")[-_FAST_TOKENS:]]), True
            until_ns = self._clock.monotonic_ns() + ANSWER_WITHIN_NS
            asked[ours] = _Asked(importer, reply, until_ns, many)
        before, self._on_its_way = self._on_its_way, _OnItsWay(headers, who)
        try:
            taken = router.deliver(route, theirs, ours, headers, payload, origin, 0) > 0
        finally:
            self._on_its_way = before
        if not taken:
            asked.pop(ours, None)
        return taken

    def _who(
        self, importer: HostedAccount, wanted: Import, headers: bytes, origin: Origin | None
    ) -> dict[str, Any]:
        """Who asks: the account that asked first, and the one through which the request came."""
        on_its_way = self._on_its_way
        if on_its_way is not None and on_its_way.headers == headers:
            return {**on_its_way.who, "svc": importer.name}
        if origin is None:
            return {"acc": importer.name}
        if wanted.share:
            return origin.describe()
        if origin.round_trip_ns:
            return {"acc": importer.name, "rtt": origin.round_trip_ns}
        return {"acc": importer.name}

    def _forget_old(self, asked: dict[bytes, _Asked]) -> None:
        now_ns = self._clock.monotonic_ns()
        while asked:
            oldest = next(iter(asked))
            if asked[oldest].until_ns > now_ns and len(asked) < ANSWERS_MAX:
                return
            del asked[oldest]

    def _token(self) -> bytes:
        return b"%012x" % self._random.getrandbits(48)


class _Answers:
    """Hands the answers of an exporter to whoever asked."""

    def __init__(self, asked: dict[bytes, _Asked], clock: Clock) -> None:
        self._asked = asked
        self._clock = clock

    def __call__(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        found = self._take(subject)
        if found is None:
            return False
        return found.account.router.publish(found.reply, reply, headers, payload) > 0

    def send(
        self, inbox: bytes, subject: bytes, reply: bytes, headers: bytes, payload: bytes
    ) -> None:
        """An answer that shows another subject than the inbox, as messages of a stream do."""
        found = self._take(inbox)
        target = None if found is None else found.account.router.resolve(found.reply)
        if target is not None:
            target.send(subject, reply, headers, payload)

    def resolve(self, inbox: bytes) -> Target | None:
        """Who receives what is sent to ``inbox``; None when it was answered, or nobody asked."""
        return None if inbox not in self._asked else _AnswerTarget(inbox, self)

    def _take(self, inbox: bytes) -> _Asked | None:
        found = self._asked.get(inbox)
        if found is None or found.until_ns <= self._clock.monotonic_ns():
            return None
        if not found.many:
            del self._asked[inbox]
        return found


class _AnswerTarget(SinkTarget):
    """The inbox of a request that came from another account."""

    __slots__ = ("_answers",)

    def __init__(self, inbox: bytes, answers: _Answers) -> None:
        super().__init__(inbox, answers)
        self._answers = answers

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self._answers.send(self._inbox, subject, reply, headers, payload)


class _Forward:
    """Brings the messages of an imported stream into the importing account.

    What is only sent to an imported subject, as a push consumer does, keeps the subject it shows.
    """

    def __init__(self, importer: HostedAccount, transform: SubjectTransform) -> None:
        self._router = importer.router
        self._transform = transform

    def __call__(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        ours = self._transform.apply(subject)
        if ours is None:
            return False
        router = self._router
        return router.deliver(router.find(ours), ours, reply, headers, payload, origin, 0) > 0

    def resolve(self, inbox: bytes) -> Target | None:
        """Who receives there what is sent to ``inbox`` here."""
        ours = self._transform.apply(inbox)
        return None if ours is None else self._router.resolve(ours)

    def name_of(self, subject: bytes) -> bytes | None:
        return self._transform.apply(subject)

    def watch(self, watch: Watch) -> None:
        self._router.watch(watch)

    def unwatch(self, watch: Watch) -> None:
        self._router.unwatch(watch)


def _without_imports(route: Route) -> Route:
    """Who hears a request of another account: not a third one that imports the subject as a stream."""
    if not any(isinstance(sink, _Forward) for sink in route.sinks):
        return route
    sinks = tuple(sink for sink in route.sinks if not isinstance(sink, _Forward))
    return Route(route.plain, route.groups, sinks)


def _answers_often(exporter: HostedAccount, wanted: Import) -> bool:
    return any(
        export.many_answers
        for export in exporter.options.exports
        if export.kind == "service" and is_subset(wanted.subject, export.subject)
    )
