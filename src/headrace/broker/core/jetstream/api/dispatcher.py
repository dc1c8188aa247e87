"""The request-reply API on ``$JS.API.>``: finding the endpoint, strict JSON, answers and refusals.

An endpoint is a function that gets a ``Call`` and returns the document of its answer. What it changed is
durable before the answer leaves: an endpoint that changes something says so when it is registered.

Calls of clusters, which nats-server answers, are refused in words (``RefusedApi``): a tool that asks
learns at once what is not to be had, instead of waiting for an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from .....api.base import Document, DocumentError, decode
from .....api.consumers import ConsumerConfig
from .....api.envelope import encode_response
from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamConfig
from .....errors import StoreError
from .....pattern_tree import TooManyPatternsError
from ...ports import Bus, Origin, Sink
from ..advisories import API_AUDIT
from ..config.options import JetStreamOptions, Refused
from ..config.sizes import check_ranges, check_request_size, with_checked_texts
from ..consumer.consumer import Consumer
from ..context import Context
from ..headers import required_level_too_high
from ..stream.stream import Stream, StreamMarks
from ..tick.flush_barrier import store_refusal

T = TypeVar("T")
D = TypeVar("D", bound=Document)
_PREFIX_TOKENS: Final = 2  # $JS.API
_WRONG_WORD: Final = re.compile(r"Invalid enum value '(.*)' - at `\$.*?(\w+)`")


class Usage(NamedTuple):
    """What all streams use together, in bytes, and how many consumers there are."""

    memory_bytes: int
    storage_bytes: int
    reserved_memory_bytes: int
    reserved_storage_bytes: int
    consumers: int


class LostAssets(Protocol):
    """Streams that are on the disk and cannot be served."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why not, by name."""


class Assets(Protocol):
    """The streams and consumers of an account; see ``engine.registry.Registry``.

    Changes are journaled; what cannot be raises StoreError.
    """

    @property
    def streams(self) -> Mapping[str, Stream]: ...
    @property
    def lost(self) -> LostAssets: ...
    def create_stream(self, config: StreamConfig) -> Stream: ...
    def adopt_stream(self, config: StreamConfig) -> Stream: ...
    def update_stream(self, stream: Stream, config: StreamConfig) -> None: ...
    def delete_stream(self, stream: Stream) -> None: ...
    def drop_lost(self, name: str) -> None: ...
    def create_consumer(self, stream: Stream, name: str, config: ConsumerConfig) -> Consumer: ...
    def restart_consumer(self, consumer: Consumer, sequence: int) -> None: ...
    def journal_consumer(self, consumer: Consumer) -> None: ...
    def delete_consumer(self, consumer: Consumer) -> None: ...
    def mirror_of(self, name: str) -> Stream | None: ...
    def usage(self) -> Usage: ...


def page_of(found: Sequence[T], offset: int, size: int) -> tuple[Sequence[T], dict[str, int]]:
    """One page of what was found, and what its answer says of the place."""
    start = min(max(offset, 0), len(found))
    return found[start : start + size], {"total": len(found), "offset": start, "limit": size}


def stream_of(assets: Assets, name: str) -> Stream:
    """The stream of this name. Raises Refused."""
    stream = assets.streams.get(name)
    if stream is None:
        raise Refused(Errors.STREAM_NOT_FOUND)
    return stream


class Call(msgspec.Struct):
    """One API request. ``names`` are the tokens of the subject after those of the endpoint."""

    subject: str
    names: list[str]
    reply: bytes
    headers: bytes
    payload: bytes
    origin: Origin | None = None
    wait: bool = False
    """Set by an endpoint that shows something not yet durable: the answer waits until it is."""
    route: _Route | None = None
    """What the answer is like; set by the dispatcher."""

    def read(self, kind: type[D], check_counts: Callable[[D], None] | None = None) -> D:
        """The request body, strictly; an empty body is the default document.

        ``check_counts`` refuses lists that are too long, before anything is looked at one by one.
        """
        if not self.payload.strip():
            return kind()
        check_request_size(self.payload)
        document = decode(self.payload, kind, strict=True)
        if check_counts is not None:
            check_counts(document)
        return with_checked_texts(check_ranges(document), self.payload)

    def expect_empty(self) -> None:
        """Refuse a body other than nothing or ``{}``."""
        if self.payload.strip() not in (b"", b"{}"):
            raise Refused(Errors.NOT_EMPTY_REQUEST)


class ApiAnswer(NamedTuple):
    """A document with fields beside it, when a document alone does not say it."""

    document: Document | None
    extra: dict[str, Any]


_Raw = Callable[[bytes, bytes, bytes, bytes, Origin | None], bool]
Endpoint = Callable[[Call], "Document | ApiAnswer | None"]


class _Route(NamedTuple):
    kind: str
    endpoint: Endpoint
    names: range
    changes: bool
    paced: bool
    blank: Mapping[str, Any]


def dynamic_metadata(options: JetStreamOptions, level: str, *, listed: bool) -> dict[str, str]:
    """What the server overlays on ``config.metadata``; ``level`` is what the configuration needs."""
    if listed:
        return {"_nats.req.level": level}
    return {
        "_nats.ver": options.version,
        "_nats.level": str(options.api_level),
        "_nats.req.level": level,
    }


def _in_server_words(text: str) -> str:
    """The commonest complaints about JSON as the public server words them."""
    if text == "Input data was truncated":
        return "unexpected EOF"
    wrong = _WRONG_WORD.fullmatch(text)
    if wrong is None:
        return text
    word, field = wrong.groups()
    if field == "compression":
        return "unknown compression algorithm"
    if field == "priority_policy":
        return f'unknown priority policy: "{word}"'
    return f'can not unmarshal "\\"{word}\\""'


def _too_many(route: _Route) -> ErrorSpec:
    """How a request with too many subjects is refused."""
    is_stream = route.kind.startswith("stream")
    return Errors.STREAM_INVALID_CONFIG if is_stream else Errors.CONSUMER_CREATE


class ApiDispatcher:
    """Routes requests to endpoints and counts them."""

    def __init__(self, context: Context, streams: StreamMarks) -> None:
        self._context = context
        self._streams = streams
        self._routes: dict[str, _Route] = {}
        self._raw: dict[str, _Raw] = {}
        self._raw_starts: list[tuple[bytes, _Raw]] = []
        self.total = 0
        self.errors = 0

    def add(
        self,
        verb: str,
        kind: str,
        endpoint: Endpoint,
        *,
        names: tuple[int, int] = (1, 1),
        changes: bool = False,
        paced: bool = False,
        blank: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Serve ``$JS.API.<verb>`` followed by ``names[0]`` to ``names[1]`` tokens.

        ``kind`` is the type of its answers; ``changes`` makes an answer wait until it is durable;
        ``paced`` is for what may make or remove a directory: few of these go into one commit;
        ``blank`` are fields a refusal shows beside the error, as the public server's does.
        """
        self._routes[verb] = _Route(
            kind, endpoint, range(names[0], names[1] + 1), changes, paced, blank
        )

    def add_raw(self, verb: str, handler: _Raw) -> None:
        """Serve a verb whose answers are no JSON; False from the handler means nobody is there."""
        self._raw[verb] = handler
        self._raw_starts = [
            (b"$JS.API.%b." % known.encode(), handler) for known, handler in self._raw.items()
        ]

    def sink(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        """Take one request. An unknown one is met with silence, as by the public server.

        Only clients ask. What the server itself sends, where somebody had it sent, is no request of
        his: he might not have been allowed to make it.
        """
        if origin is None:
            return False
        for start, handler in self._raw_starts:
            if subject.startswith(start):
                return handler(subject, reply, headers, payload, origin)
        text = subject.decode(errors="replace")
        tokens = text.split(".")[_PREFIX_TOKENS:]
        verb, route = self._find(tokens)
        if verb in self._raw:
            return self._raw[verb](subject, reply, headers, payload, origin)
        if route is not None:
            call = Call(text, tokens[verb.count(".") + 1 :], reply, headers, payload, origin)
            if route.paced:
                self._context.barrier.paced.carry_out(partial(self._call, route, call), origin)
            else:
                self._call(route, call)
        return None

    def _find(self, tokens: list[str]) -> tuple[str, _Route | None]:
        """The verb a subject begins with, and its endpoint, if it has one and the names for it."""
        for size in (3, 2, 1):
            verb = ".".join(tokens[:size])
            route = self._routes.get(verb)
            if verb in self._raw or (route is not None and len(tokens) - size in route.names):
                return verb, route
        return "", None

    def stand_in(self, bus: Bus) -> Sink:
        """A sink for an account without JetStream: it refuses what ``sink`` would serve."""

        def refuse(
            subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
        ) -> bool:
            tokens = subject.decode(errors="replace").split(".")[_PREFIX_TOKENS:]
            verb, route = self._find(tokens)
            if verb in self._raw:
                return False
            if route is not None:
                error = Errors.NOT_ENABLED_FOR_ACCOUNT.to_wire()
                body = encode_response(route.kind, None, error=error, **route.blank)
                bus.publish(reply, b"", b"", body)
            return True  # no call there is: silence, as by an account that has streams

        return refuse

    def _call(self, route: _Route, call: Call) -> None:
        call.route = route
        try:
            if required_level_too_high(call.headers, self._context.options.api_level):
                raise Refused(Errors.REQUIRED_API_LEVEL)
            failed = self._context.storage.failed
            if route.changes and failed is not None:
                raise Refused(store_refusal(failed))
            self._streams.enforce_limits()  # an answer is as if each message had been seen to at once
            answer = route.endpoint(call)
        except Refused as refusal:
            self._refuse(route, call, refusal)
            return
        except StoreError as error:
            self._refuse(route, call, Refused(store_refusal(error)))
            return
        except TooManyPatternsError as error:
            self._refuse(route, call, Refused(_too_many(route), err=error))
            return
        except DocumentError as error:
            text = _in_server_words(str(error))
            self._refuse(route, call, Refused(Errors.INVALID_JSON, err=text))
            return
        if answer is not None:
            self.complete(call, answer)

    def complete(self, call: Call, answer: Document | ApiAnswer) -> None:
        """Answer a call whose endpoint has returned None, when what it asked for is staged."""
        route = call.route
        assert route is not None  # the dispatcher has set it
        self.total += 1  # after its answer was made: the account's own numbers do not count it yet
        document, extra = answer if isinstance(answer, ApiAnswer) else (answer, {})
        body = encode_response(route.kind, document, **extra)
        if route.changes or call.wait:
            barrier = self._context.barrier
            barrier.reply(call.reply, body, route.kind)
            if self._context.advisories.audits:
                barrier.reply(API_AUDIT, self._audit(call, body))
        else:
            self._answer(call, body)

    def fail(self, call: Call, error: Exception) -> None:
        """Answer a call whose endpoint has returned None: the store did not do it."""
        self.refuse(call, Refused(store_refusal(error)))

    def refuse(self, call: Call, refusal: Refused) -> None:
        """Answer a call whose endpoint has returned None: it is refused after all."""
        assert call.route is not None  # the dispatcher has set it
        self._refuse(call.route, call, refusal)

    def _refuse(self, route: _Route, call: Call, refusal: Refused) -> None:
        self.total += 1
        self.errors += 1
        error = refusal.error.to_wire()
        self._answer(call, encode_response(route.kind, None, error=error, **route.blank))

    def _answer(self, call: Call, body: bytes) -> None:
        bus = self._context.bus
        if call.reply:
            bus.publish(call.reply, b"", b"", body)
        if self._context.advisories.audits:
            bus.publish(API_AUDIT, b"", b"", self._audit(call, body))

    def _audit(self, call: Call, body: bytes) -> bytes:
        client = None if call.origin is None else call.origin.describe()
        return self._context.advisories.api_call(call.subject, call.payload, body, client)


class RefusedApi:
    """Their endpoints."""

    def __init__(self, api: ApiDispatcher) -> None:
        for verb, kind, names in (
            ("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown_response", 1),
            ("STREAM.PEER.REMOVE", "stream_remove_peer_response", 1),
            ("CONSUMER.LEADER.STEPDOWN", "consumer_leader_stepdown_response", 2),
        ):
            api.add(verb, kind, _needs_cluster, names=(names, names))


def _needs_cluster(call: Call) -> Document | None:
    raise Refused(Errors.CLUSTER_REQUIRED)
