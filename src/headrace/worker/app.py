"""A worker, declared: what it handles, and how. Nothing happens before it is run."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from ..client.jetstream.consuming.concurrent import check_concurrency
from ..client.jetstream.pull import PriorityOptions, check_options
from ..errors import ConfigurationError
from ..handling.callbacks import check_callback, check_plain
from ..handling.failure_policy import DeadLetter, OnFailure
from .handling import Hook
from .metrics import Tally
from .schemas import Schema, check_schemas
from .typed import MisfitError, Wants, takes_of, wants_of

if TYPE_CHECKING:
    from ..api.consumers import ConsumerConfig
    from ..client.connection import Connection

__all__ = ["ConsumerSource", "GroupSource", "Source", "Worker", "load"]


F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Connection"], AbstractAsyncContextManager[object]]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where messages come from, and who handles them."""

    stream: str
    name: str
    function: Callable[..., Any]
    wants: Wants
    on_failure: OnFailure | None
    concurrency: int
    publish: str
    schema: Schema | None
    returns: Schema | None
    key: Callable[[Any], Hashable] | None
    config: ConsumerConfig | None
    tally: Tally = field(default_factory=Tally)

    @property
    def label(self) -> str:
        """For texts."""
        return f"{self.stream}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class ConsumerSource(Source):
    """A consumer; ``name`` is its own. ``priority`` is what each pull of its priority group says."""

    priority: PriorityOptions = field(default_factory=PriorityOptions)


@dataclass(frozen=True, kw_only=True)
class GroupSource(Source):
    """A group; ``name`` is its own."""

    member: str
    kind: Literal["elastic", "static"]

    @property
    def label(self) -> str:
        """For texts."""
        return f"{self.stream}/{self.name}/{self.member}"


class Worker:
    """Handlers of consumers and groups, run together by ``headrace worker app:worker`` or by ``run``.

    A handler takes a message, a model that is read from its payload, or both; it returns None, or what is
    published. When it returns, its message is acknowledged, unless it has answered it. What it raises is
    followed by ``on_failure``. Coroutine functions run on the event loop, plain functions on threads.

    Args:
        name: of the connection, and in texts.
        servers: URLs; "" is what the command line, or ``NATS_URL``, says.
        lifespan: called with the connection before the first message; the async context manager that it
            returns is left when the last handler has ended. For pools, and what else handlers need.
        tracing: whether its connection continues traces, and makes spans where OpenTelemetry is set up.
    """

    def __init__(
        self,
        name: str = "worker",
        *,
        servers: str = "",
        lifespan: Lifespan | None = None,
        tracing: bool = False,
    ) -> None:
        self.name = name
        self.servers = servers
        self.lifespan = check_plain("lifespan", lifespan)
        self.tracing = tracing
        self._sources: list[Source] = []
        self._hooks: list[Hook] = []

    def __repr__(self) -> str:
        return f"<Worker {self.name!r} of {', '.join(each.label for each in self._sources) or 'nothing'}>"

    @property
    def sources(self) -> Sequence[Source]:
        """What it handles, as declared."""
        return tuple(self._sources)

    @property
    def hooks(self) -> Sequence[Hook]:
        """What is around each handler, the outermost first."""
        return tuple(self._hooks)

    def consumer(
        self,
        stream: str,
        name: str,
        *,
        config: ConsumerConfig | None = None,
        concurrency: int = 1,
        order_by: Callable[[Any], Hashable] | None = None,
        on_failure: OnFailure | None = None,
        publish: str = "",
        schema: Schema | None = None,
        returns: Schema | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> Callable[[F], F]:
        """The decorated function handles the messages of a durable consumer.

        Args:
            config: the consumer is made, or what this names of it changed, before it is pulled from; None:
                it is there.
            concurrency, order_by, on_failure: as of ``Consumer.consume``. A handler that takes a model needs
                a ``DeadLetter``: what does not fit is put there at once, with the reason.
            publish: the subject to which what the handler returns is published, before the message is
                acknowledged: once, as its id is made of the message's.
            schema: by which messages are read before the handler's model is made of them. Those that do not
                fit are dead letters at once; while the registry is away they wait.
            returns: by which results are written; the latest schema of its subject.
            group, min_pending, min_ack_pending, priority: of a consumer with priority groups, as of
                ``Consumer.consume``: workers elsewhere help once so much waits (``overflow``), stand by for
                the pinned one (``pinned_client``), or come after others (``prioritized``).

        Raises:
            ConfigurationError: an argument is wrong, or the function cannot be called with a message.
        """
        check_options(priority)

        def declare(function: F) -> F:
            wants = self._checked(function, stream, name, on_failure, publish, schema, returns)
            check_concurrency(concurrency, order_by, function)
            self._add(
                ConsumerSource(
                    stream=stream,
                    name=name,
                    function=function,
                    wants=wants,
                    on_failure=_with_misfits(on_failure),
                    concurrency=concurrency,
                    publish=publish,
                    schema=schema,
                    returns=returns,
                    key=order_by,
                    config=config,
                    priority=priority,
                )
            )
            return function

        return declare

    def group(
        self,
        stream: str,
        name: str,
        *,
        member: str,
        kind: Literal["elastic", "static"] = "elastic",
        config: ConsumerConfig | None = None,
        concurrency: int = 1,
        key: Callable[[Any], Hashable] | None = None,
        on_failure: OnFailure | None = None,
        publish: str = "",
        schema: Schema | None = None,
        returns: Schema | None = None,
    ) -> Callable[[F], F]:
        """The decorated function handles the messages of a member of a group, which is there already.

        Args:
            member: which of the group's members this is; start several workers as one for standbys.
            kind: ``elastic`` or ``static``.
            config, concurrency, key, on_failure: as of ``elastic.join``.
            publish, schema, returns: as of ``consumer``.
        """

        def declare(function: F) -> F:
            wants = self._checked(function, stream, name, on_failure, publish, schema, returns)
            if kind not in ("elastic", "static"):
                raise ConfigurationError(f"kind is {kind!r}; accepted: elastic, static")
            self._add(
                GroupSource(
                    stream=stream,
                    name=name,
                    function=function,
                    wants=wants,
                    on_failure=_with_misfits(on_failure),
                    concurrency=concurrency,
                    publish=publish,
                    schema=schema,
                    returns=returns,
                    key=key,
                    config=config,
                    member=member,
                    kind=kind,
                )
            )
            return function

        return declare

    def around(self, hook: Hook) -> Hook:
        """Have ``hook(message)``, a context manager, around each handler: entered where the handler runs, for
        plain functions on their threads. It sees what the handler raises."""
        check_plain("hook", hook)
        self._hooks.append(hook)
        return hook

    def _add(self, source: Source) -> None:
        if any(each.label == source.label for each in self._sources):
            raise ConfigurationError(
                f"worker {self.name}: {source.label} has a handler already; accepted is one, with concurrency"
            )
        self._sources.append(source)

    def _checked(
        self,
        function: Callable[..., Any],
        stream: str,
        name: str,
        on_failure: OnFailure | None,
        publish: str,
        schema: Schema | None,
        returns: Schema | None,
    ) -> Wants:
        check_callback("handler", function)
        for what, text in (("stream", stream), ("name", name)):
            if not isinstance(text, str) or not text:
                raise ConfigurationError(f"{what} is {text!r}; accepted is a name")
        wants = wants_of(function)
        if wants.are_typed and not isinstance(on_failure, DeadLetter):
            raise ConfigurationError(
                f"the handler of {stream}/{name} takes a model, and has on_failure={on_failure!r}; accepted "
                "is DeadLetter(subject, …): what does not fit has to go somewhere"
            )
        check_schemas(schema, returns, publish)
        if returns is not None and not isinstance(on_failure, DeadLetter):
            raise ConfigurationError(
                f"the results of {stream}/{name} have a schema, and on_failure is {on_failure!r}; accepted "
                "is DeadLetter(subject, …): what does not fit has to go somewhere"
            )
        if schema is not None:
            takes_of(wants, schema.format)
        return wants


def _with_misfits(policy: OnFailure | None) -> OnFailure | None:
    """As ``policy``; what does not fit is not tried again."""
    if not isinstance(policy, DeadLetter) or MisfitError in policy.never:
        return policy
    return replace(policy, never=(*policy.never, MisfitError))


def load(name: str) -> Worker:
    """The worker called ``module:attribute``; the module is looked for in the working directory, too.

    Raises ConfigurationError: there is none. What the module itself raises is the program's.
    """
    module_name, colon, attribute = name.partition(":")
    if not module_name or not colon or not attribute:
        raise ConfigurationError(
            f"{name!r} names no worker; accepted is module:attribute, as app:worker"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise ConfigurationError(
            f"there is no module {module_name!r} here ({here}), nor is one installed"
        ) from error
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Worker):
        workers = sorted(key for key, value in vars(module).items() if isinstance(value, Worker))
        raise ConfigurationError(
            f"{name!r} is {found!r}; accepted is a headrace.worker.Worker"
            + (f"; the module has {', '.join(workers)}" if workers else "")
        )
    if not found.sources:
        raise ConfigurationError(
            f"worker {name!r} handles nothing: it has no consumer and no group"
        )
    return found
