"""Accounts: separate worlds of subjects, with or without JetStream.

A session belongs to one account and sees nothing of the others except what is exported and imported
(``links``). An account is made when the configuration names it, and lives as long as the hub. A client that
loses access to it is disconnected; its streams stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from ....errors import ConfigurationError
from ....subjects import overlaps
from ..account_options import (
    DEFAULT_ACCOUNT,
    SYSTEM_ACCOUNT,
    AccountOptions,
    JetStreamLimits,
    check_accounts,
)
from ..net.router import Router
from ..ports.bus import Origin
from .links import Links
from .storage import AccountStorage

if TYPE_CHECKING:
    from ....clock import Clock
    from ..jetstream.config.options import JetStreamOptions
    from ..jetstream.engine.account_limits import ServerStore
    from ..jetstream.engine.engine import JetStream
    from ..jetstream.tick.flush_barrier import Commits
    from ..ports.bus import Randomness, Sink, Timers
    from ..ports.storage import Storage
    from .origins import Origins

_CALLS: Final = b"$JS.API."
_API: Final = _CALLS + b">"


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

    def __init__(self, clock: Clock, random: Randomness, timers: Timers) -> None:
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
        from .origins import Origins

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
        timers: Timers,
    ) -> None:
        # A broker without streams starts without the engine.
        from ..jetstream.engine.account_limits import ServerStore
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
