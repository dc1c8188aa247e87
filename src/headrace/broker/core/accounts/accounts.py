"""Accounts: separate worlds of subjects, with or without JetStream.

A session belongs to one account and sees nothing of the others except what is exported and imported
(``links``). An account is made when the configuration names it, and lives as long as the hub. A client that
loses access to it is disconnected; its streams stay.

``Origins`` are streams of other accounts as origins of sources and mirrors, as imports and exports allow.
A source names the API of the other account as it is imported (``external.api``), and a prefix to deliver
under (``external.deliver``). nats-server asks that API for a consumer, which delivers to a subject that is
imported as well. Here nothing is sent, but the same has to be allowed: the request for the consumer must
get to the other account's API by imports of services, and its deliveries must get here by imports of
streams, under the subject they have there. What was allowed is looked at again whenever that changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ....api.errors import Errors
from ....api.streams import StreamSource
from ....errors import ConfigurationError
from ....subjects import overlaps
from ..jetstream.sourcing.copies import Reach
from ..net.router import Router
from ..options import (
    DEFAULT_ACCOUNT,
    SYSTEM_ACCOUNT,
    AccountOptions,
    JetStreamLimits,
    check_accounts,
)
from ..ports import Origin
from .links import Links
from .storage import AccountStorage

if TYPE_CHECKING:
    from ....clock import Clock
    from ..jetstream.config.options import JetStreamOptions
    from ..jetstream.engine.engine import JetStream, ServerStore
    from ..jetstream.tick.flush_barrier import Commits
    from ..ports import Randomness, Sink, Storage
    from ..timers import TimerQueue


_API_CALLS: Final = "$JS.API."
_HOPS_MAX: Final = 32  # accounts a request may go through; imports that go in circles are refused
_MADE_UP: Final = "00000000"  # for one that nobody knows: names and subjects made for the occasion
_CALLS: Final = b"$JS.API."
_API: Final = _CALLS + b">"


class Origins:
    """Finds streams over the accounts of one server."""

    def __init__(self, domain: str) -> None:
        self._domain_api = f"$JS.{domain}.API." if domain else ""
        self._accounts: list[Account] = []

    def configure(self, accounts: Iterable[Account]) -> None:
        """Over these accounts; what was allowed before is looked at again."""
        self._accounts = list(accounts)
        for account in self._accounts:
            if account.engine is not None:
                account.engine.copies.elsewhere = partial(self.reach, account)
        for account in self._accounts:
            if account.engine is not None:
                account.engine.copies.look_again_elsewhere()

    def reach(self, account: Account, source: StreamSource, *, is_mirror: bool) -> Reach:
        """Where the stream of an external source is, if ``account`` may copy it."""
        failed = (
            Errors.MIRROR_CONSUMER_SETUP_FAILED
            if is_mirror
            else Errors.SOURCE_CONSUMER_SETUP_FAILED
        )
        request = _request(source, is_mirror=is_mirror)
        owner, theirs = self._follow(account, request)
        if owner is None:
            return Reach(None, failed.with_(err=f"nobody answers {request}: it is not imported"))
        if owner.engine is None:
            return Reach(None, Errors.NOT_ENABLED_FOR_ACCOUNT)
        if theirs != _request(source, is_mirror=is_mirror, api=_API_CALLS):
            return Reach(None, failed.with_(err=f"{request} is imported as {theirs}"))
        delivery = _delivery(source, is_mirror=is_mirror)
        # Where a consumer of its own delivers to is known when it is asked, and found out then.
        if source.consumer is None and not self._arrives(owner, account, delivery):
            text = f"{delivery} of the origin's account is not imported"
            return Reach(None, failed.with_(err=text))
        return Reach(owner.engine.copies)

    def _follow(self, account: Account, subject: str) -> tuple[Account | None, str]:
        """Who answers a request, and how it is called there."""
        for _ in range(_HOPS_MAX):
            if subject.startswith(_API_CALLS):
                return account, subject
            if self._domain_api and subject.startswith(self._domain_api):
                return account, _API_CALLS + subject.removeprefix(self._domain_api)
            for wanted in account.options.imports:
                theirs = (
                    wanted.transform().apply(subject.encode()) if wanted.kind == "service" else None
                )
                exporter = self._named(wanted.account)
                if theirs is not None and exporter is not None:
                    account, subject = exporter, theirs.decode()
                    break
            else:
                break
        return None, subject

    def _arrives(self, origin: Account, account: Account, subject: str) -> bool:
        """Whether what ``origin`` delivers there gets to ``account`` under the same subject."""
        frontier = {(origin, subject.encode())}
        for _ in range(_HOPS_MAX):
            if (account, subject.encode()) in frontier:
                return True
            frontier = {
                (importer, ours)
                for exporter, theirs in frontier
                for importer in self._accounts
                for wanted in importer.options.imports
                if wanted.kind == "stream" and wanted.account == exporter.name
                if (ours := wanted.transform().apply(theirs)) is not None
            }
        return False

    def _named(self, name: str) -> Account | None:
        return next((account for account in self._accounts if account.name == name), None)


def _request(source: StreamSource, *, is_mirror: bool, api: str = "") -> str:
    """The subject a consumer for this source would be asked for on, or a given one be reset on."""
    assert source.external is not None
    prefix = api or f"{source.external.api}."
    if source.consumer is not None:
        return f"{prefix}CONSUMER.RESET.{source.name}.{source.consumer.name}".replace("..", ".")
    filters = [rule.src or ">" for rule in source.subject_transforms]
    filter = source.filter_subject or (filters[0] if len(filters) == 1 else "")
    call = f"{prefix}CONSUMER.CREATE.{source.name}"
    if filter:
        call += f".JS_{'MIRROR' if is_mirror else 'SRC'}_{_MADE_UP}.{filter}"
    return call.replace("..", ".")


def _delivery(source: StreamSource, *, is_mirror: bool) -> str:
    """The subject such a consumer would deliver to."""
    assert source.external is not None
    prefix = source.external.deliver or "$JS"
    return f"{prefix}.{'M' if is_mirror else 'S'}.{_MADE_UP}".replace("..", ".")


class Account:
    """Made by ``Accounts``; ``connections`` is kept by the sessions."""

    __slots__ = ("connections", "engine", "name", "options", "router")

    def __init__(self, options: AccountOptions, random: Randomness) -> None:
        self.name = options.name
        self.options = options
        self.router = Router(random)
        self.engine: JetStream | None = None
        self.connections = 0

    def __repr__(self) -> str:
        return f"Account({self.name!r})"

    @property
    def is_full(self) -> bool:
        """Whether one more connection would be too many."""
        return 0 <= self.options.connections_max <= self.connections


class Accounts:
    """The accounts of a hub by name: always the default one and the system's, and those configured."""

    def __init__(self, clock: Clock, random: Randomness, timers: TimerQueue) -> None:
        self._clock = clock
        self._random = random
        self._timers = timers
        self._by_name: dict[str, Account] = {}
        self._links = Links(clock, random)
        self._jetstream: _Shared | None = None
        self._origins: Origins | None = None
        self.engines: list[JetStream] = []
        self.system_name = SYSTEM_ACCOUNT
        self.default = self._account(
            AccountOptions(name=DEFAULT_ACCOUNT, jetstream=JetStreamLimits())
        )
        self._account(AccountOptions(name=SYSTEM_ACCOUNT))

    def __iter__(self) -> Iterator[Account]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Account | None:
        """The account of this name; an empty one means the default account."""
        return self._by_name.get(name) if name else self.default

    @property
    def system(self) -> Account:
        return self._by_name[self.system_name]

    def configure(
        self, wanted: Iterable[AccountOptions], system_name: str = SYSTEM_ACCOUNT
    ) -> list[str]:
        """Add or change these accounts; accounts that are not named stay.

        Returns the names of accounts that lose JetStream: they keep it until a restart. Those that are
        not ``wanted`` any more keep their streams and have no links. Raises ConfigurationError, and
        StoreError when an account's streams cannot be opened.
        """
        wanted = list(wanted)
        check_accounts(wanted)
        left: list[str] = []
        named = {options.name: options for options in wanted}
        self.system_name = system_name
        for options in (*wanted, AccountOptions(name=system_name)):
            if options.name not in self._by_name:
                self._account(options)
        for account in self._by_name.values():
            options = named.get(account.name) or AccountOptions(name=account.name)
            if account.engine is not None and options.jetstream is None:
                if account.name in named:
                    left.append(account.name)
                options = msgspec.structs.replace(options, jetstream=account.options.jetstream)
            account.options = options
            self._limit(account)
        self._links.configure(self._by_name.values())
        self._start_engines()
        return left

    # JetStream

    def start_jetstream(self, storage: Storage, options: JetStreamOptions) -> None:
        """Serve the streams in ``storage`` to accounts with JetStream. Raises StoreError."""

        self._jetstream = _Shared(storage, options, self._clock, self._random, self._timers)
        self._origins = Origins(options.domain)
        self._start_engines()

    def _start_engines(self) -> None:
        shared = self._jetstream
        if shared is None:
            return
        for account in self._by_name.values():
            if account.options.jetstream is not None and account.engine is None:
                account.engine = shared.start(account)
                self.engines.append(account.engine)
        shared.stand_in(self._by_name.values())
        if self._origins is not None:
            self._origins.configure(self._by_name.values())

    def _limit(self, account: Account) -> None:
        shared = self._jetstream
        if account.engine is not None and shared is not None:
            account.engine.reconfigure(shared.options_of(account))

    def _account(self, options: AccountOptions) -> Account:
        account = self._by_name[options.name] = Account(options, self._random)
        return account


class _Shared:
    """What the engines of all accounts share: the storage, its flushes, and the server's limits."""

    def __init__(
        self,
        storage: Storage,
        options: JetStreamOptions,
        clock: Clock,
        random: Randomness,
        timers: TimerQueue,
    ) -> None:
        # A broker without streams starts without the engine.
        from ..jetstream.engine.engine import ServerStore
        from ..jetstream.tick.flush_barrier import Commits

        self._storage = storage
        self._options = options
        self._machine = clock, random, timers
        self._commits: Commits = Commits(storage, clock, timers)
        self._server: ServerStore = ServerStore(options.max_memory_bytes, options.max_storage_bytes)
        self._stand_ins: dict[Account, Sink] = {}
        self._nobodys: JetStream | None = None

    def options_of(self, account: Account) -> JetStreamOptions:
        limits = account.options.jetstream or JetStreamLimits()
        return msgspec.structs.replace(
            self._options,
            account=account.name,
            limits=limits.of_one_node() or JetStreamLimits(max_memory=0, max_storage=0),
            tiers=limits.tiers,
        )

    def start(self, account: Account) -> JetStream:
        from ..jetstream.engine.engine import JetStream

        stand_in = self._stand_ins.pop(account, None)
        if stand_in is not None:
            account.router.remove_sink(_API, stand_in)
        name = "" if account.name == DEFAULT_ACCOUNT else account.name
        engine = JetStream(
            account.router,
            AccountStorage(self._storage, name),
            *self._machine,
            self.options_of(account),
            self._commits,
            self._server,
        )
        engine.recover()
        if self._options.domain:
            DomainApi(account.router, self._options.domain)
        return engine

    def stand_in(self, accounts: Iterable[Account]) -> None:
        """Make accounts without JetStream say so when they are asked.

        One that imports calls of another's is answered from there alone; what it does not import nobody
        answers.
        """
        for account in accounts:
            if account.engine is not None:
                continue
            is_elsewhere = any(
                wanted.kind == "service" and overlaps(wanted.pattern, _API)
                for wanted in account.options.imports
            )
            sink = self._stand_ins.get(account)
            if sink is None and not is_elsewhere:
                if self._nobodys is None:
                    self._nobodys = self._without_account()
                sink = self._stand_ins[account] = self._nobodys.stand_in(account.router)
                account.router.add_sink(_API, sink)
            elif sink is not None and is_elsewhere:
                del self._stand_ins[account]
                account.router.remove_sink(_API, sink)

    def _without_account(self) -> JetStream:
        """An engine without an account, which knows every API call: there may be no other engine."""
        from ..jetstream.engine.engine import JetStream

        _, random, _ = self._machine
        return JetStream(Router(random), self._storage, *self._machine, self._options)


def check_domain(domain: str) -> None:
    """Raise ConfigurationError for a name that cannot be one token of a subject."""
    if domain == "API" or any(c in ".*>" or c.isspace() or not c.isprintable() for c in domain):
        raise ConfigurationError(
            f"domain: {domain!r}; accepted is a name without blanks, '.', '*' and '>', other than API"
        )


class DomainApi:
    """A sink that hands what comes for the domain to the API of the same account."""

    def __init__(self, router: Router, domain: str) -> None:
        self._router = router
        self._prefix = f"$JS.{domain}.API.".encode()
        router.add_sink(self._prefix + b">", self)

    def __call__(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        router, ours = self._router, _CALLS + subject[len(self._prefix) :]
        return router.deliver(router.find(ours), ours, reply, headers, payload, origin, 0) > 0
