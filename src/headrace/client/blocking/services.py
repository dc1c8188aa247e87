"""``Service`` for threads: each endpoint's handler is called on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from ...blocking import blocking, calling
from ...errors import ConfigurationError
from ...handling.callbacks import check_plain
from ..services import Service as AioService
from ..services import ServiceGroup as AioServiceGroup
from ..services import checked_queue
from .loop_thread import Facade, callback_here
from .messages import Message
from .subscription import Subscription

Handler = Callable[[Message], bytes | None]


class Service(Facade):
    """One instance of a service. Made by ``Connection.add_service``.

    ::

        with connection.add_service("calc", version="1.0.0") as service:
            service.add_endpoint("double", lambda message: message.payload * 2)
            service.stopped()

    Every NATS client finds it and sees what it does, on ``$SRV.PING``, ``$SRV.INFO`` and ``$SRV.STATS``.

    Attributes:
        name, version: as given.
        id: of this instance.
    """

    __slots__ = ()
    _inner: AioService

    @property
    def name(self) -> str:
        """As given."""
        return self._inner.name

    @property
    def version(self) -> str:
        """As given."""
        return self._inner.version

    @property
    def id(self) -> str:
        """Of this instance."""
        return self._inner.id

    # Endpoints

    def add_endpoint(
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
            handler: called with each message in turn, a plain function, on a thread of its own. What it
                returns is the answer; with None it answered itself (``message.respond``), or not at all. If
                it raises ServiceError the requester gets that, and for any other error one with code 500.
            subject: where it listens; "" is the name.
            queue: of all instances with this queue group, one answers each request; "" is the service's or
                the group's, None is none: every instance answers.
            metadata: what ``info`` says of it beside.

        Raises:
            ConfigurationError, InvalidSubjectError: an argument is wrong.
        """
        if not callable(handler):
            raise ConfigurationError(f"handler is {handler!r}; accepted is a function")
        check_plain("handler", handler)
        endpoint = self._thread.run(self._inner._open(name, subject or name, queue, metadata))

        def handle(message: Message) -> None:
            with endpoint.counted():
                result = handler(message)
                if result is not None:
                    message.respond(result)

        Subscription(self._thread, endpoint.subscription)._start(handle)

    def group(self, prefix: str, *, queue: str | None = "") -> ServiceGroup:
        """Endpoints whose subjects begin with ``prefix``; ``queue`` as for ``add_endpoint``."""
        return ServiceGroup(self._thread, self._inner.group(prefix, queue=queue))

    # What it says of itself

    info = calling(AioService.info)
    stats = calling(AioService.stats)
    reset = calling(AioService.reset)

    # Its end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        self.stop()

    def stop(self) -> None:
        """Take no more requests, answer those that came, and stop being found. May be called again."""
        self._thread.run(self._inner._stop(callback_here()))

    stopped = blocking(AioService.stopped)


class ServiceGroup(Facade):
    """Endpoints of one service whose subjects begin alike. Made by ``Service.group``.

    Attributes:
        prefix: how they begin.
    """

    __slots__ = ()
    _inner: AioServiceGroup

    @property
    def prefix(self) -> str:
        """How they begin."""
        return self._inner.prefix

    def add_endpoint(
        self,
        name: str,
        handler: Handler,
        *,
        subject: str = "",
        queue: str | None = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """As ``Service.add_endpoint``, with the subject below ``prefix``."""
        Service(self._thread, self._inner._service).add_endpoint(
            name,
            handler,
            subject=f"{self.prefix}.{subject or name}",
            queue=checked_queue(queue, self._inner._queue),
            metadata=metadata,
        )

    def group(self, prefix: str, *, queue: str | None = "") -> ServiceGroup:
        """A group below this one."""
        return ServiceGroup(self._thread, self._inner.group(prefix, queue=queue))
