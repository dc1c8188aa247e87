"""A service: its endpoints, what it answers on ``$SRV``, its end."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import msgspec

from ..errors import ConfigurationError, ServiceError
from ..subjects import check_pattern, check_subject
from .message import Message
from .subscription import Subscription

if TYPE_CHECKING:
    from .connection import Connection

__all__ = [
    "EndpointInfo",
    "EndpointStats",
    "Service",
    "ServiceGroup",
    "ServiceInfo",
    "ServiceStats",
]

PREFIX: Final = "$SRV"
QUEUE_DEFAULT: Final = "q"

Verb = Literal["PING", "INFO", "STATS"]

_TYPE: Final = "io.nats.micro.v1.{}_response"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)


class EndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint: its name, its subject, its queue group ("" is none), its metadata."""

    name: str
    subject: str
    queue_group: str
    metadata: dict[str, str] = {}


class EndpointStats(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint has done since it began, or since ``reset``; times are nanoseconds."""

    name: str
    subject: str
    queue_group: str
    num_requests: int
    num_errors: int
    last_error: str
    processing_time: int
    average_processing_time: int
    data: Any = None


class ServiceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a service, and its endpoints."""

    name: str
    id: str
    version: str
    metadata: dict[str, str]
    description: str
    endpoints: list[EndpointInfo]


class ServiceStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the endpoints of one instance have done since ``started`` (RFC 3339)."""

    name: str
    id: str
    version: str
    metadata: dict[str, str]
    started: str
    endpoints: list[EndpointStats]


def answer(verb: Verb, document: Mapping[str, Any]) -> bytes:
    """The answer to a question on a control subject."""
    return msgspec.json.encode({"type": _TYPE.format(verb.lower()), **document})


def control_subjects(verb: Verb, name: str, instance: str) -> tuple[str, str, str]:
    """Where a question is asked: of all services, of all instances of one, and of one instance."""
    return (f"{PREFIX}.{verb}", f"{PREFIX}.{verb}.{name}", f"{PREFIX}.{verb}.{name}.{instance}")


def checked_name(what: str, name: str) -> str:
    """A name of a service or an endpoint. Raises ConfigurationError."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError(f"{what} {name!r}: accepted are letters, digits, '-' and '_'")
    return name


def checked_version(version: str) -> str:
    """A semantic version. Raises ConfigurationError."""
    if not isinstance(version, str) or _VERSION.fullmatch(version) is None:
        raise ConfigurationError(f"version {version!r}: accepted is a semantic version, as 1.0.0")
    return version


def checked_subject(subject: str) -> str:
    """The subject of an endpoint, which may have wildcards. Raises InvalidSubjectError."""
    check_pattern(subject.encode())
    return subject


def checked_queue(queue: str | None, inherited: str | None) -> str | None:
    """A queue group: its own, or with "" the inherited one; None is none. Raises InvalidSubjectError."""
    if queue == "":
        return inherited
    if queue is not None:
        check_subject(queue.encode())
    return queue


_VERBS: Final[tuple[Verb, ...]] = ("PING", "INFO", "STATS")

Handler = Callable[[Message], Awaitable[bytes | None] | bytes | None]


class Endpoint:
    """One endpoint: what it counts, and the subscription behind it."""

    __slots__ = ("errors", "info", "last_error", "processing_ns", "requests", "subscription")

    def __init__(self, info: EndpointInfo, subscription: Subscription) -> None:
        self.info = info
        self.subscription = subscription
        self.reset()

    def reset(self) -> None:
        """Count from 0."""
        self.requests = 0
        self.errors = 0
        self.last_error = ""
        self.processing_ns = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one request: its time, and the error it ends with."""
        self.requests += 1
        began = time.perf_counter_ns()
        try:
            yield
        except Exception as error:
            self.errors += 1
            is_told = isinstance(error, ServiceError)
            self.last_error = str(error) if is_told else type(error).__name__
            raise  # the subscription answers with it
        finally:
            self.processing_ns += time.perf_counter_ns() - began

    def stats(self) -> EndpointStats:
        """What it has done."""
        return EndpointStats(
            name=self.info.name,
            subject=self.info.subject,
            queue_group=self.info.queue_group,
            num_requests=self.requests,
            num_errors=self.errors,
            last_error=self.last_error,
            processing_time=self.processing_ns,
            average_processing_time=self.processing_ns // max(1, self.requests),
        )


class Service:
    """One instance of a service. Made by ``Connection.add_service``.

    ::

        async with await connection.add_service("calc", version="1.0.0") as service:
            await service.add_endpoint("double", lambda message: message.payload * 2)
            await service.stopped()

    Every NATS client finds it and sees what it does, on ``$SRV.PING``, ``$SRV.INFO`` and ``$SRV.STATS``.

    Attributes:
        name, version: as given.
        id: of this instance.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        version: str,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue: str | None = QUEUE_DEFAULT,
    ) -> None:
        self.name = checked_name("service name", name)
        self.version = checked_version(version)
        self.id = connection._session.nuid.next()
        self._connection = connection
        self._description = description
        self._metadata = dict(metadata or {})
        self._queue = checked_queue(queue, QUEUE_DEFAULT)
        self._started = _now()
        self._controls: list[Subscription] = []
        self._endpoints: list[Endpoint] = []
        self._stopped = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Service {self.name!r} {self.version} with {len(self._endpoints)} endpoints>"

    async def _start(self) -> Self:
        for verb in _VERBS:
            for subject in control_subjects(verb, self.name, self.id):
                control = await self._connection.subscribe(
                    subject, callback=partial(self._tell, verb), answer_errors=False
                )
                self._controls.append(control)
        return self

    # Endpoints

    async def add_endpoint(
        self,
        name: str,
        handler: Handler,
        *,
        subject: str = "",
        queue: str | None = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Answer the requests on a subject.

        Args:
            handler: called with each message in turn, a plain or a coroutine function. What it returns is
                the answer; with None it answered itself (``message.respond``), or not at all. If it raises
                ServiceError the requester gets that, and for any other error one with code 500.
            subject: where it listens; "" is the name.
            queue: of all instances with this queue group, one answers each request; "" is the service's or
                the group's, None is none: every instance answers.
            metadata: what ``info`` says of it beside.

        Raises:
            ConfigurationError, InvalidSubjectError: an argument is wrong.
        """
        if not callable(handler):
            raise ConfigurationError(f"handler is {handler!r}; accepted is a function")
        endpoint = await self._open(name, subject or name, queue, metadata)

        async def handle(message: Message) -> None:
            with endpoint.counted():
                result = handler(message)
                if inspect.isawaitable(result):
                    result = await result
                if result is not None:
                    await message.respond(result)

        endpoint.subscription.start(handle)

    def group(self, prefix: str, *, queue: str | None = "") -> ServiceGroup:
        """Endpoints whose subjects begin with ``prefix``; ``queue`` as for ``add_endpoint``."""
        return ServiceGroup(self, prefix, checked_queue(queue, self._queue))

    async def _open(
        self, name: str, subject: str, queue: str | None, metadata: Mapping[str, str] | None
    ) -> Endpoint:
        """A new endpoint that receives, and has nobody yet who handles what it gets."""
        if self._stopped.is_set():
            raise ConfigurationError(f"service {self.name!r} was stopped")
        group = checked_queue(queue, self._queue) or ""
        info = EndpointInfo(
            name=checked_name("endpoint name", name),
            subject=checked_subject(subject),
            queue_group=group,
            metadata=dict(metadata or {}),
        )
        subscription = await self._connection.subscribe(subject, queue=group, answer_errors=True)
        endpoint = Endpoint(info, subscription)
        self._endpoints.append(endpoint)
        return endpoint

    # What it says of itself

    def info(self) -> ServiceInfo:
        """The service and its endpoints."""
        return ServiceInfo(
            name=self.name,
            id=self.id,
            version=self.version,
            metadata=self._metadata,
            description=self._description,
            endpoints=[endpoint.info for endpoint in self._endpoints],
        )

    def stats(self) -> ServiceStats:
        """What its endpoints have done."""
        return ServiceStats(
            name=self.name,
            id=self.id,
            version=self.version,
            metadata=self._metadata,
            started=self._started,
            endpoints=[endpoint.stats() for endpoint in self._endpoints],
        )

    def reset(self) -> None:
        """Let ``stats`` count from 0."""
        self._started = _now()
        for endpoint in self._endpoints:
            endpoint.reset()

    def _tell(self, verb: Verb, message: Message) -> None:
        if not message.reply:
            return
        document: dict[str, Any]
        if verb == "STATS":
            document = msgspec.to_builtins(self.stats())
        else:
            document = msgspec.to_builtins(self.info())
            if verb == "PING":
                document = {key: document[key] for key in ("name", "id", "version", "metadata")}
        message._session.publish(message._response(answer(verb, document), None))

    # Its end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        await self.stop()

    async def stop(self) -> None:
        """Take no more requests, answer those that came, and stop being found. May be called again."""
        await self._stop(asyncio.current_task())

    async def _stop(self, caller: object) -> None:
        """``stop``, without waiting for ``caller``, which may be a handler."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        drains = [each.subscription._drain_for(caller) for each in self._endpoints]
        try:
            await asyncio.gather(*drains)
        finally:
            for control in self._controls:
                await control.unsubscribe()

    async def stopped(self) -> None:
        """Wait until somebody stops it."""
        await self._stopped.wait()


class ServiceGroup:
    """Endpoints of one service whose subjects begin alike. Made by ``Service.group``.

    Attributes:
        prefix: how they begin.
    """

    def __init__(self, service: Service, prefix: str, queue: str | None) -> None:
        self.prefix = checked_subject(prefix)
        self._service = service
        self._queue = queue

    def __repr__(self) -> str:
        return f"<ServiceGroup {self.prefix!r}>"

    async def add_endpoint(
        self,
        name: str,
        handler: Handler,
        *,
        subject: str = "",
        queue: str | None = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """As ``Service.add_endpoint``, with the subject below ``prefix``."""
        await self._service.add_endpoint(
            name,
            handler,
            subject=f"{self.prefix}.{subject or name}",
            queue=checked_queue(queue, self._queue),
            metadata=metadata,
        )

    def group(self, prefix: str, *, queue: str | None = "") -> ServiceGroup:
        """A group below this one."""
        return ServiceGroup(
            self._service, f"{self.prefix}.{prefix}", checked_queue(queue, self._queue)
        )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
