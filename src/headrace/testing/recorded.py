"""What a program published, and what its handlers handled: recorded, to be compared, with the difference."""

from __future__ import annotations

import contextlib
import difflib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from ..documents import DocumentError, read_json
from ..errors import ConfigurationError, RequestTimeoutError

if TYPE_CHECKING:
    from ..client.message import Headers
    from ..sync import Connection, Message
    from ..worker import Delivered, Worker

__all__ = ["Handled", "Published", "Recorded", "Seen", "handled", "published"]

_OWN: Final = ("_INBOX.", "$")
"""How subjects begin that clients and servers use among themselves."""


class Seen(NamedTuple):
    """A message that was recorded. ``error`` is what its handler raised, else None."""

    subject: str
    payload: bytes
    headers: Headers
    error: BaseException | None = None


class Recorded(ABC):
    """Messages in the order in which they came. Compare it with a list of what should have come.

    An item of the list is a subject, or a subject and a payload: bytes, or any other value, which is
    compared with the payload as JSON. Where they differ, pytest shows the difference.
    """

    __hash__ = None  # type: ignore[assignment]  # it grows

    @property
    @abstractmethod
    def messages(self) -> list[Seen]:
        """What has come until now."""

    @abstractmethod
    def wait(self, count: int, timeout: float = 30.0) -> list[Seen]:
        """The messages, once there are ``count`` of them or more. Raises TimeoutError."""

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Seen]:
        return iter(self.messages)

    def __eq__(self, expected: object) -> bool:
        if not isinstance(expected, list):
            return NotImplemented
        return not self._differs(self.messages, expected)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_lines(self.messages)}>"

    def difference(self, expected: Sequence[Any]) -> list[str]:
        """Lines as of ``diff``: ``-`` should have come, ``+`` has come; empty where they are equal."""
        messages = self.messages
        if not self._differs(messages, expected):
            return []
        as_json = any(_is_json(item) for item in expected)
        wanted = [_line(*_parts(item)) for item in expected]
        came = []
        for place, each in enumerate(messages):
            alike = _parts(expected[place]) if place < len(expected) else ("", b"")
            came.append(_shown(each, as_json, with_payload=alike[1] is not None))
        return [line.rstrip("\n") for line in difflib.ndiff(wanted, came)]

    @staticmethod
    def _differs(messages: Sequence[Seen], expected: Sequence[Any]) -> bool:
        return len(messages) != len(expected) or not all(map(_fits, messages, expected))


class Published(Recorded):
    """What is published on a subject: see ``published``."""

    def __init__(self, connection: Connection, subject: str) -> None:
        self._connection = connection
        self._subscription = connection.subscribe(subject)
        self._all = subject.startswith(_OWN)
        self._messages: list[Seen] = []
        self._lock = threading.Lock()
        connection.flush()

    @property
    def messages(self) -> list[Seen]:
        """What the server had of it when asked."""
        with self._lock:
            self._connection.flush()  # all that the server had before comes before its answer
            while self._subscription.pending_messages:
                self._note(self._subscription.next_batch())
            if self._subscription.dropped:
                raise AssertionError(
                    f"{self._subscription.dropped} messages of {self._subscription.subject!r} were lost: "
                    "more came than a subscription holds; ask for them more often"
                )
            return list(self._messages)

    def wait(self, count: int, timeout: float = 30.0) -> list[Seen]:
        """The messages, once there are ``count`` of them or more. In a coroutine: ``await
        asyncio.to_thread(seen.wait, 2)``.

        Raises:
            TimeoutError: they did not come; the text has those that did.
        """
        deadline = time.monotonic() + timeout
        while len(came := self.messages) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _too_few(came, count, timeout)
            with self._lock, contextlib.suppress(RequestTimeoutError):
                self._note([self._subscription.next(left)])
        return came

    def close(self) -> None:
        """Record no more. What has come stays out of reach: look at it before."""
        self._subscription.unsubscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _note(self, messages: Sequence[Message]) -> None:
        self._messages += [
            Seen(each.subject, each.payload, each.headers)
            for each in messages
            if self._all or not each.subject.startswith(_OWN)
        ]


class Handled(Recorded):
    """What the handlers of a worker have handled: see ``handled``."""

    def __init__(self) -> None:
        self._messages: list[Seen] = []
        self._more = threading.Condition()

    @property
    def messages(self) -> list[Seen]:
        """Those whose handler has returned or raised."""
        with self._more:
            return list(self._messages)

    @property
    def errors(self) -> list[BaseException]:
        """What handlers raised."""
        return [each.error for each in self.messages if each.error is not None]

    def wait(self, count: int, timeout: float = 30.0) -> list[Seen]:
        """The messages, once there are ``count`` of them or more. In a coroutine: ``await
        asyncio.to_thread(seen.wait, 2)``.

        Raises:
            TimeoutError: they did not come; the text has those that did.
        """
        with self._more:
            if not self._more.wait_for(lambda: len(self._messages) >= count, timeout):
                raise _too_few(self._messages, count, timeout)
            return list(self._messages)

    @contextlib.contextmanager
    def _around(self, message: Delivered) -> Iterator[None]:
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            with self._more:
                seen = Seen(message.subject, message.payload, message.headers, error)
                self._messages.append(seen)
                self._more.notify_all()


def published(connection: Connection, subject: str = ">") -> Published:
    """Record what anybody publishes on ``subject`` from now on.

    ::

        with published(connection, "orders.>") as seen:
            ...  # what is tested
            assert seen == [("orders.1", b"two apples"), ("orders.2", {"customer": "eve"})]

    Args:
        connection: a blocking one (``headrace.sync``), also for tests of coroutines: the broker must run on
            another thread, as that of the fixtures does.
        subject: wildcards are welcome. Subjects that clients and servers use among themselves (``_INBOX.``,
            ``$``) are left out unless it begins so.
    """
    return Published(connection, subject)


@contextlib.contextmanager
def handled(worker: Worker) -> Iterator[Handled]:
    """Record what the handlers of ``worker`` handle, if it is run inside of the block.

    A message is there when its handler has returned, or has raised, which ``error`` says; one that comes
    again is there again. It is recorded inside of the worker's own hooks.
    """
    if not hasattr(worker, "around"):
        raise ConfigurationError(f"worker is {worker!r:.100}; accepted is a headrace.worker.Worker")
    seen = Handled()
    worker.around(seen._around)
    try:
        yield seen
    finally:
        worker._hooks.remove(seen._around)


def _parts(item: Any) -> tuple[str, Any]:
    """The subject and the payload of what is expected; None: whatever it is."""
    if isinstance(item, str):
        return item, None
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        return item[0], item[1]
    raise ConfigurationError(
        f"an expected message is {item!r:.100}; accepted are a subject, and a pair of subject and payload"
    )


def _is_json(item: Any) -> bool:
    payload = _parts(item)[1]
    return payload is not None and not isinstance(payload, bytes)


def _fits(seen: Seen, item: Any) -> bool:
    subject, payload = _parts(item)
    if seen.subject != subject or payload is None:
        return seen.subject == subject
    if isinstance(payload, bytes):
        return seen.payload == payload
    try:
        return bool(read_json(seen.payload) == msgspec.to_builtins(payload))
    except DocumentError:
        return False


def _line(subject: str, payload: Any) -> str:
    if payload is None:
        return subject
    if isinstance(payload, bytes):
        return f"{subject} {payload!r}"
    return f"{subject} {json.dumps(msgspec.to_builtins(payload), sort_keys=True)}"


def _shown(seen: Seen, as_json: bool, *, with_payload: bool) -> str:
    value: Any = seen.payload if with_payload else None
    if with_payload and as_json:
        with contextlib.suppress(DocumentError):
            value = read_json(seen.payload)
            if value is None:
                return f"{seen.subject} null"
    return _line(seen.subject, value)


def _lines(messages: Sequence[Seen]) -> str:
    return ", ".join(_line(each.subject, each.payload) for each in messages) or "nothing"


def _too_few(messages: Sequence[Seen], count: int, timeout: float) -> RequestTimeoutError:
    return RequestTimeoutError(
        f"{len(messages)} of {count} messages within {timeout} s: {_lines(messages)}"
    )
