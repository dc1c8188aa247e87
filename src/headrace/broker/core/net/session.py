"""The server's end of one client connection, without the socket.

Bytes go in by ``receive``, one chunk at a time. What is to be written waits in ``output`` and leaves by
``take_output``, once per tick. Input that does not fit into a turn is kept (``session_input``). The texts of
``-ERR`` and the reasons to close are those of nats-server. A session changes its state by ``next_state``
alone: what is not in its table cannot happen, and says so.

The loop over published messages (``_publish_relaxed``) is the hottest of the broker. It serves clients
that want neither confirmations nor checks and may publish anywhere, which is what client libraries do. All
other clients, and all other frames, go through ``_handle``.

nats-server decides while its reader waits who a client is. Here a slow decision is made beside the event loop
(``Login``). Until then the client's input is kept, and the shell reads no more of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import msgspec

from ....api.times import format_time
from ....subjects import is_valid_subject
from ....wire import Parser, encode
from ....wire.frames import BAD, CONNECT, PING, PONG, PUB, SUB, UNSUB, Frame
from ..auth.authentication import Identity, SlowDecision
from ..auth.permissions import ExpectedAnswers
from ..peer import UNSAID, ConnectOptions, Peer, decode_connect, described
from .keepalive import KeepAlive
from .output import Output
from .publishing import (
    HANDED_OVER,
    RESERVED,
    RUN,
    grouped,
    hand_over_groups,
    hand_over_run,
    is_refused,
    say_nobody,
)
from .router import BROADCAST, Broadcast
from .session_input import SessionInput
from .session_subscriptions import SessionSubscriptions, shown
from .short_way import CHUNK_BYTES_MAX, STARTS, take_short_way
from .subscription import GuardedSubscription, Subscription

if TYPE_CHECKING:
    from ....clock import SteadyClock
    from ..auth.authentication import Authenticator, SlowDecisions
    from ..budget import Budget
    from ..options import AccountOptions, HubOptions
    from ..ports import Origin
    from ..timers import TimerQueue
    from .publishing import HandOver
    from .router import Router
    from .session_subscriptions import Leaving

LINE_UNITS: Final = 8  # what a line that is no message counts in a turn


class SessionState(Enum):
    """``is_in``: the client was let in. ``is_deciding``: its input is kept. ``is_closed``: it is over."""

    __hash__ = object.__hash__  # Enum's own is a call in Python, for each change of a session

    AWAITING_LOGIN = ("the client has not been let in", False, False, False)
    DECIDING = ("it is being decided whether the client is let in", False, True, False)
    OPEN = ("the client was let in, and what it says is handled", True, False, False)
    DECIDING_AGAIN = ("a client that is in has sent CONNECT again", True, True, False)
    CLOSED = ("it is over", False, False, True)

    def __init__(self, meaning: str, is_in: bool, is_deciding: bool, is_closed: bool) -> None:
        self.meaning = meaning
        self.is_in = is_in
        self.is_deciding = is_deciding
        self.is_closed = is_closed


class SessionEvent(Enum):
    """What can change the state of a session."""

    __hash__ = object.__hash__  # Enum's own is a call in Python, for each change of a session

    DEFER = auto()
    """Who the client is takes long to decide (a password and its hash)."""
    DECIDE = auto()
    """The decision is made, and what it says comes next: ``ENTER``, ``CLOSE``, or ``DEFER`` once more."""
    ENTER = auto()
    """The client is let in, for the first time or again."""
    CLOSE = auto()
    """Either end has had enough, or the socket is gone."""


_S, _E = SessionState, SessionEvent

TRANSITIONS: Final = {
    (_S.AWAITING_LOGIN, _E.DEFER): _S.DECIDING,
    (_S.AWAITING_LOGIN, _E.ENTER): _S.OPEN,
    (_S.AWAITING_LOGIN, _E.CLOSE): _S.CLOSED,
    (_S.DECIDING, _E.DECIDE): _S.AWAITING_LOGIN,
    (_S.DECIDING, _E.CLOSE): _S.CLOSED,
    (_S.OPEN, _E.DEFER): _S.DECIDING_AGAIN,
    (_S.OPEN, _E.ENTER): _S.OPEN,
    (_S.OPEN, _E.CLOSE): _S.CLOSED,
    (_S.DECIDING_AGAIN, _E.DECIDE): _S.OPEN,
    (_S.DECIDING_AGAIN, _E.CLOSE): _S.CLOSED,
}


def next_state(state: SessionState, event: SessionEvent) -> SessionState:
    """The state after ``event``. Raises RuntimeError, a fault of ours, if it cannot happen in ``state``."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise RuntimeError(f"{event.name} cannot happen to a session that is {state.name}")
    return found


class HostedAccount(Protocol):
    """The account a session belongs to; see ``accounts.accounts.Account``."""

    name: str
    router: Router
    connections: int
    """Kept by the sessions."""

    @property
    def options(self) -> AccountOptions: ...
    @property
    def is_full(self) -> bool: ...


class HostedAccounts(Protocol):
    """Where a session finds its account; see ``accounts.accounts.Accounts``."""

    @property
    def default(self) -> HostedAccount: ...
    def get(self, name: str) -> HostedAccount | None: ...


class Host(Protocol):
    """Implemented by the hub."""

    authenticator: Authenticator
    budget: Budget
    clock: SteadyClock
    decisions: SlowDecisions
    leaving: Leaving
    options: HubOptions
    server_name: str
    touched: list[Output[Session]]
    """Outputs with something in them; always the same list."""

    @property
    def accounts(self) -> HostedAccounts: ...

    @property
    def timers(self) -> TimerQueue: ...

    def info(self, session: Session, *, entered: bool = False) -> bytes:
        """The INFO document for one client; one that has ``entered`` learns which account it is in."""

    def entered(self, session: Session) -> None:
        """A client has logged in."""

    def ended(self, session: Session) -> None:
        """A session is over."""


class Login:
    """Logs one session in."""

    __slots__ = ("_hub", "_reviews", "_session")

    def __init__(self, session: Session, hub: Host) -> None:
        self._session = session
        self._hub = hub
        self._reviews = 0

    def ask(self, options: ConnectOptions) -> None:
        """Let the client in, or hang up: now, or when the decision is made."""
        if not self._hub.options.headers:
            options = msgspec.structs.replace(options, headers=False)
        authenticator = self._hub.authenticator
        verdict = authenticator.authenticate(options, self._session.peer)
        if not isinstance(verdict, SlowDecision):
            self._session.enter(options, verdict)
            return

        def decided(identity: Identity | None) -> None:
            if authenticator is self._hub.authenticator:
                self._session.enter(options, identity)
            else:
                self.ask(options)  # the operator changed who may come in meanwhile

        self._session.defer()
        self._begin(verdict, lambda identity: self._let_go_on(lambda: decided(identity)))

    def end(self) -> None:
        """The session has ended, and is let go; a decision that comes still is ignored."""
        del self._session

    def review(self) -> None:
        """Judge the credentials of the session anew, and act on it."""
        if self._session.state.is_deciding:
            return  # will be decided by what holds then
        verdict = self._hub.authenticator.authenticate(self._session.options, self._session.peer)
        self._reviews = number = self._reviews + 1
        if not isinstance(verdict, SlowDecision):
            self._session.change_identity(verdict)
            return

        def decided(identity: Identity | None) -> None:
            is_newest = self._reviews == number
            if is_newest and not self._session.state.is_deciding:
                self._session.change_identity(identity)

        self._begin(verdict, decided)

    def _begin(self, verdict: SlowDecision, decided: Callable[[Identity | None], None]) -> None:
        session = self._session

        def decide() -> Identity | None:
            return None if session.closed else verdict.decide()

        def unless_gone(identity: Identity | None) -> None:
            if not session.closed:
                decided(identity)

        self._hub.decisions.begin(session, decide, unless_gone)

    def _let_go_on(self, decided: Callable[[], None]) -> None:
        """Act on a decision, then on what the client said meanwhile."""
        session = self._session
        session.decided()
        decided()
        session.release()


class Session:
    """One connection. Implements ``Origin``; made by the hub."""

    __slots__ = (
        "_budget", "_hub", "_input", "_keepalive", "_last_words", "_login", "_parser", "_relaxed",
        "_short_max", "_subscriptions", "account", "answers", "client_id", "close_reason", "identity",
        "in_bytes", "in_messages", "options", "output", "payload_max", "peer", "router", "started_ns",
        "state",
    )  # fmt: skip

    subscription_kinds: ClassVar[tuple[type[Subscription] | None, type[GuardedSubscription]]] = (
        Subscription,
        GuardedSubscription,
    )
    """For those whose messages nobody has to check, and for all others."""

    def __init__(self, hub: Host, client_id: int, peer: Peer) -> None:
        options = hub.options
        self._hub = hub
        self.client_id = client_id
        self.peer = peer
        self.options = UNSAID
        self.account: HostedAccount = hub.accounts.default
        self.account.connections += 1
        self.router = self.account.router
        self.identity = Identity()
        self.state = (
            SessionState.AWAITING_LOGIN if hub.authenticator.required else SessionState.OPEN
        )
        self.close_reason = ""
        self.started_ns = hub.clock.now_ns()
        self.in_messages = 0
        self.in_bytes = 0
        self.payload_max = options.max_payload
        self.output = Output(self, hub.touched, options.outbound_bytes_max)
        self._subscriptions = SessionSubscriptions(self, *self.subscription_kinds)
        self._parser = Parser.for_server(
            max_payload=options.max_payload, max_control_line=options.max_control_line
        )
        self._relaxed = False
        self._short_max = 0
        self.answers: ExpectedAnswers | None = None
        self._last_words: list[bytes] = []  # of one that is closed
        self._keepalive = KeepAlive(self, hub)
        self._login = Login(self, hub)
        self._budget = budget = hub.budget
        self._input = SessionInput(budget, self._parser, self._handle_piece, self._handle_frames)
        if not self.state.is_in:
            self._keepalive.await_login()
            return
        guest = hub.authenticator.authenticate(UNSAID, peer)
        if isinstance(guest, SlowDecision):
            raise TypeError("before CONNECT there is nothing to decide by")
        if self._become(guest):
            self._keepalive.begin()

    def __repr__(self) -> str:
        return f"Session({self.client_id}, {self.peer.host}:{self.peer.port})"

    @property
    def round_trip_ns(self) -> int:
        """How long the last ping took; 0 before the first answer."""
        return self._keepalive.round_trip_ns

    @property
    def out_messages(self) -> int:
        """How many messages were delivered to this client."""
        return self._subscriptions.delivered

    @property
    def subscriptions(self) -> Mapping[bytes, Subscription]:
        """What it listens to, by ``sid``."""
        return self._subscriptions.by_sid

    def tell_ended(self, tell: Callable[[list[bytes]], object]) -> None:
        """From here on ``tell`` is called with the ids of subscriptions that have ended."""
        self._subscriptions.on_end = tell

    @property
    def authenticated(self) -> bool:
        """Whether the client was let in, and is not gone."""
        return self.state.is_in

    @property
    def closed(self) -> bool:
        """Whether it is over. What waited to be written before is still written."""
        return self.state.is_closed

    def describe(self) -> dict[str, Any]:
        """Who this is, as advisories show it: nats-server's client document, without secrets.

        ``rtt`` is in nanoseconds; what the client did not say is left out.
        """
        return {
            "start": format_time(self.started_ns),
            "id": self.client_id,
            "acc": self.account.name,
            **described(self.peer, self.options, self.identity.name, self.round_trip_ns),
            "server": self._hub.server_name,
            "kind": "Client",
            "client_type": self.peer.transport,
        }

    # Its state

    def defer(self) -> None:
        """Keep what the client says until it is decided who it is."""
        self.state = next_state(self.state, SessionEvent.DEFER)
        self.hold()

    def decided(self) -> None:
        """It is decided who the client is; what it said meanwhile is handled after ``release``."""
        self.state = next_state(self.state, SessionEvent.DECIDE)

    # What the shell calls

    @property
    def holds_input(self) -> bool:
        """Whether input is kept for later. The shell should read no more until it is not."""
        return bool(self._input.held or self._input.is_kept) and not self.state.is_closed

    @property
    def wants_slice(self) -> bool:
        """Whether ``go_on`` has work: input is kept that only waits for time."""
        return self._input.is_kept and not (self._input.held or self.state.is_closed)

    @property
    def kept_bytes(self) -> int:
        """How much input waits to be handled."""
        return self._input.kept_bytes

    def receive(self, chunk: Any) -> None:
        """Handle input, as far as there is time. The session may be ``closed`` afterwards."""
        if self.state.is_closed:
            return  # it has been told why
        self._keepalive.heard = True
        self._input.add(chunk)

    def go_on(self) -> None:
        """Handle what was kept, as far as there is time."""
        if not self.state.is_closed:
            self._input.go_on()

    def hold(self) -> None:
        self._input.held += 1

    def release(self) -> None:
        self._input.held -= 1
        self._hub.touched.append(self.output)  # the shell reads on
        self.go_on()

    def _handle_piece(self, piece: Any) -> int:
        """Handle a piece of a chunk; returns how many frames it completed."""
        if not (self.state.is_in or self._parser.held_bytes or piece[:1] in (b"C", b"c")):
            # Refused before the parser would keep a payload of somebody unknown.
            self.close("Authorization Violation", "Authentication Failure")
            return 0
        taken = 0
        if self._relaxed and len(piece) <= self._short_max and not self._parser.held_bytes:
            piece, taken = self._take_short_way(piece)
            if not piece:
                return taken
        before = self._parser.message_bytes
        frames = self._parser.feed(piece)
        self.in_bytes += self._parser.message_bytes - before
        if taken and self._budget.spent:
            self._input.keep(frames)
            return taken + len(frames)
        return taken + self._handle_batch(frames)

    def _take_short_way(self, piece: Any) -> tuple[Any, int]:
        """Have acknowledgements and pull requests taken as they were written.

        Returns what is left of a chunk, and how many frames were taken.
        """
        if piece.__class__ is not bytes or not piece.startswith(STARTS):
            return piece, 0
        budget, at, taken = self._budget, 0, 0
        while at < len(piece) and not budget.spent:
            end, count, nbytes = take_short_way(self.router, self, piece, at)
            if not count:
                break
            at = end
            taken += count
            self.in_messages += count
            self.in_bytes += nbytes
            budget.charge(count)
            if self.state.is_closed:
                return b"", taken
        return piece[at:], taken

    def _handle_batch(self, frames: list[Frame]) -> int:
        """Handle frames that came at once. Those for one sink go there in a single call."""
        count = len(frames)
        if count > 1 and self._relaxed and frames[0][0] == PUB:
            frames = grouped(self.router, self._hand_over(hand_over_groups, frames))
        self._handle_frames(iter(frames))
        return count

    def _hand_over(self, hand_over: HandOver, frames: list[Frame]) -> list[Frame]:
        """Have publishes taken in a single call; returns those that are left."""
        left = hand_over(self.router, self, frames)
        taken = len(frames) - len(left)
        self.in_messages += taken
        self._budget.charge(taken)
        return left

    def _run_over(self, router: Router, origin: Origin, frames: list[Frame]) -> list[Frame]:
        return hand_over_run(router, frames, 0 if self.options.echo else self.client_id)

    def _handle_frames(self, frames: Iterator[Frame]) -> None:
        """Handle frames in order, until the session is closed or there is a reason to keep the rest."""
        budget = self._budget
        for frame in frames:
            if self._relaxed and frame[0] == PUB:
                after = self._publish_relaxed(frame, frames)
                if after is not None:
                    self._handle(after)
            elif self._relaxed and frame[0] == SUB:
                count, after = self._subscriptions.add_run(self._hub.options, frame, frames)
                budget.charge_together(LINE_UNITS * count)
                if after is not None and budget.spent:
                    self._input.keep((after,))
                elif after is not None:
                    self._handle(after)
            else:
                self._handle(frame)
            state = self.state
            if state.is_closed:
                return
            if self._input.held or budget.spent:
                self._input.keep(frames)
                return

    def take_output(self) -> list[bytes]:
        """Everything to be written now."""
        if not self.state.is_closed:
            return self.output.take()
        self.output.let_go()
        last_words, self._last_words = self._last_words, []
        return last_words

    def disconnected(self, reason: str = "Client Closed") -> None:
        self._end(reason)

    def close(self, error: str, reason: str = "") -> None:
        """Send ``-ERR`` (unless empty) and end. What waited before is still written."""
        if self.state.is_closed:
            return
        if error:
            self.output.write(encode.err(error))
        self._end(reason or error)

    def authenticate_again(self) -> None:
        """The operator changed permissions: apply them, or hang up, as nats-server does."""
        if self.state.is_in:
            self._login.review()

    def apply_limits(self, identity: Identity) -> None:
        """Apply the limits of the hub and of the user from here on."""
        options = self._hub.options
        limits = (self.account.options.payload_max, identity.payload_max)
        self.payload_max = min([options.max_payload, *(limit for limit in limits if limit >= 0)])
        self._parser.max_payload = self.payload_max
        self._parser.max_control_line = options.max_control_line
        self._short_max = min(CHUNK_BYTES_MAX, options.max_control_line, self.payload_max)

    def change_identity(self, identity: Identity | None) -> None:
        """Act for ``identity`` from here on, with the subscriptions it may have."""
        if identity != self.identity and self._become(identity):
            self._subscriptions.renew()

    # Publishing

    def _publish_relaxed(self, first: Frame, rest: Iterator[Frame]) -> Frame | None:
        """Route publishes until they or the turn end. Returns the first frame that is something else."""
        router = self.router
        known, find, deliver = router.exact.get, router.find_uncached, router.deliver
        no_responders = self.options.no_responders
        skip_client = 0 if self.options.echo else self.client_id
        answers_others = router.answers_others
        pub = PUB
        budget = self._budget
        left = budget.left
        count = 0
        found: Frame | None = None
        for frame in chain((first,), rest):
            if frame[0] != pub:
                found = frame
                break
            _op, subject, reply, headers, payload = frame
            count += 1
            if reply and (reply[0] == 36 or answers_others) and reply.startswith(RESERVED):  # "$"
                self._refuse_reply(reply)
                continue
            route = known(subject) or find(subject)
            sink = route.only_sink
            if sink is not None:
                taken = sink(subject, reply, headers, payload, self) is not False
            elif route.parts:
                found = (BROADCAST, Broadcast(router, route, frame, self, skip_client))
                break
            else:
                taken = deliver(route, subject, reply, headers, payload, self, skip_client) > 0
            if not taken and no_responders and reply:
                say_nobody(router, self.client_id, subject, reply)
            left -= route.weight
            if left < 0:
                if budget.look() or self._input.held:
                    break
                left = budget.left
        budget.left = left
        self.in_messages += count
        return found

    def _publish_checked(self, frame: Frame) -> None:
        """Route one publish that needs a check or a confirmation."""
        _op, subject, reply, headers, payload = frame
        self.in_messages += 1
        if headers and not self.options.headers:
            self._end("Message Headers Not Supported")
            return
        if self.options.pedantic and not is_valid_subject(subject):
            self.output.write(encode.err("Invalid Publish Subject"))  # and yet it is routed
        permissions = self.identity.permissions
        if permissions is not None and not (
            permissions.may_publish(subject)
            or (self.answers is not None and self.answers.use(subject))
        ):
            text = f'Permissions Violation for Publish to "{shown(subject)}"'
            self.output.write(encode.err(text))
            return
        router = self.router
        if reply and is_refused(reply, router, permissions):
            self._refuse_reply(reply)
            return
        self._confirm()
        skip_client = 0 if self.options.echo else self.client_id
        route = router.find(subject)
        if route.parts:
            self._broadcast((BROADCAST, Broadcast(router, route, frame, self, skip_client)))
            return
        self._budget.charge(route.weight)
        taken = router.deliver(route, subject, reply, headers, payload, self, skip_client)
        if not taken and self.options.no_responders and reply:
            say_nobody(router, self.client_id, subject, reply)

    def _broadcast(self, frame: Frame) -> None:
        """Deliver one message to thousands of receivers, and keep the rest when the turn is over."""
        budget, step = self._budget, frame[1].step
        while units := step():
            budget.charge(units)
            if budget.spent:
                self._input.keep((frame,))
                return

    def _refuse_reply(self, reply: bytes) -> None:
        text = f'Permissions Violation for Publish with Reply of "{shown(reply)}"'
        self.output.write(encode.err(text))

    # Everything else

    def _handle(self, frame: Frame) -> None:
        self._budget.charge(LINE_UNITS)
        op = frame[0]
        if op == CONNECT:
            self._connect(frame[1])
        elif not self.state.is_in:
            self.close("Authorization Violation", "Authentication Failure")
        elif op == PUB:
            self._publish_checked(frame)
        elif op == SUB:
            self._subscribe(frame[1], frame[2], frame[3])
        elif op == UNSUB:
            self._subscriptions.end(frame[1], frame[2])
            self._confirm()
        elif op == PING:
            self._keepalive.pinged()
        elif op in HANDED_OVER:
            left = self._hand_over(HANDED_OVER[op], frame[1]) if self._relaxed else frame[1]
            self._handle_frames(iter(left))
        elif op == BROADCAST:
            self._broadcast(frame)
        elif op == RUN:
            self._budget.charge(frame[2])
            run = self._hand_over(self._run_over, frame[1]) if self._relaxed else frame[1]
            self._handle_frames(iter(run))
        elif op == PONG:
            self._keepalive.pong()
        elif op == BAD:
            error = frame[1].wire_text
            self.close("" if error == "Parser Error" else error, error)
        else:
            raise AssertionError(f"a client's parser does not yield frame {op}")

    def _connect(self, document: bytes) -> None:
        try:
            options = decode_connect(document)
        except ValueError:
            self.close("", "Protocol Violation")  # like nats-server, without a word
            return
        self._login.ask(options)

    def enter(self, options: ConnectOptions, identity: Identity | None) -> None:
        """Let the client in as ``identity``, or hang up."""
        if identity is None:
            self.close("Authorization Violation", "Authentication Failure")
            return
        if options.protocol not in (0, 1):
            self.close("invalid client protocol")
            return
        if options.no_responders and not options.headers:
            self.close("no responders requires headers support")
            return
        if not self.state.is_in:
            self._keepalive.begin()
        self.state = next_state(self.state, SessionEvent.ENTER)
        self.options = options
        self.output.has_headers = options.headers
        if self._become(identity):
            self._hub.entered(self)
            self._confirm()

    def _become(self, identity: Identity | None) -> bool:
        """Act for ``identity`` in its account from here on, or hang up if it may not be there."""
        account = None if identity is None else self._hub.accounts.get(identity.account)
        if identity is None or account is None:
            self.close("Authorization Violation", "Authentication Failure")
            return False
        if account is not self.account:
            if account.is_full:
                self.close("maximum account active connections exceeded")
                return False
            self._move_to(account)
        self.apply_limits(identity)
        self._keepalive.expire_at(identity.until_ns)
        self._act_for(identity)
        return True

    def _move_to(self, account: HostedAccount) -> None:
        """Move to another account, with all subscriptions."""
        self._subscriptions.move(account.router)
        self.account.connections -= 1
        account.connections += 1
        self.account, self.router = account, account.router

    def _act_for(self, identity: Identity) -> None:
        """Apply the permissions of ``identity`` from here on."""
        self.identity = identity
        options, permissions = self.options, identity.permissions
        self._relaxed = (
            not options.verbose and not options.pedantic and options.headers and permissions is None
        )
        responses = None if permissions is None else permissions.responses
        self.answers = None if responses is None else ExpectedAnswers(responses, self._hub.clock)

    def _subscribe(self, pattern: bytes, queue: bytes, sid: bytes) -> None:
        refusal = self._subscriptions.add(self._hub.options, pattern, queue, sid)
        if refusal:
            self.output.write(encode.err(refusal))
        else:
            self._confirm()

    def _confirm(self) -> None:
        if self.options.verbose:
            self.output.write(encode.ok())

    # The end

    def overflow(self, limit: str = "Pending Bytes") -> None:
        """The client reads too slowly, by this limit: drop what it did not read, and close.

        Publishes of its own that stand behind the one that was too much are still delivered, as far as they
        are handled together: nats-server, too, looks at nothing before the end of what it has read.
        """
        self.output.discard()
        self.close("Slow Consumer", f"Slow Consumer ({limit})")

    def _end(self, reason: str) -> None:
        if self.state.is_closed:
            return
        self.state = next_state(self.state, SessionEvent.CLOSE)
        self.close_reason = reason
        self._keepalive.end()
        self._login.end()
        self.account.connections -= 1
        self._input.end()
        self._hub.leaving.add(self.router, self._subscriptions.close())
        self._last_words = self.output.take()  # a delivery in progress may still append, in vain
        self._hub.touched.append(self.output)
        self._hub.ended(self)
