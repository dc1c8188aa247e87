"""Every error Headrace raises, as one tree.

HeadraceError
├── ConfigurationError          a setting is wrong: which, where, what is accepted
├── InvalidSubjectError         a subject or pattern is malformed (also a ValueError)
├── ProtocolError               the peer sent bytes that are not the NATS protocol
│   └── LimitExceededError      … or more of them than a limit allows
├── ConnectionClosedError       the connection ended and will not come back
│   ├── AuthorizationError      … because the server rejected the credentials
│   └── ConnectFailedError      … because no server could be reached
├── DisconnectedError           there is no connection, or it was lost meanwhile; it is being restored
├── OutcomeUnknownError         it was sent, and no answer came: it may have been done or not
│   ├── TimeoutUnknownError     … in time (also a RequestTimeoutError)
│   └── DisconnectedUnknownError … before the connection was lost (also a DisconnectedError)
│       └── AckUnknownError     … of an acknowledgement, and asking again would tell nothing
├── UnsentError                 the connection ended before this could be sent
├── BufferFullError             the unsent output has reached its limit; nothing was queued
├── ServerError                 the server sent -ERR
├── RequestTimeoutError               no answer came in time (also a builtin TimeoutError)
├── NoRespondersError           the subject of a request has no subscriber
├── ServiceError                who answered a request says that it failed: code, description
├── JetStreamApiError           the server rejected it: code, err_code, description
│   ├── ConsumerNotFoundError   … as there is no such consumer
│   ├── StreamExistsError       … as there is one of this name, with other settings
│   └── StreamNotFoundError     … as there is no such stream
│       └── BucketNotFoundError … and so no such bucket, of keys and values or of objects
├── PullError                   a pull request ended with an error status
├── HeartbeatMissedError        a pull was silent for twice its idle heartbeat
├── SnapshotFormatError         a backup is damaged, cut off or of a form that is not known
├── HandlerFailedError          a callback failed, and its policy was to stop
├── WrongLoopError              it belongs to another event loop, or to one that is closed
├── SlowConsumerError           messages arrived faster than they were processed, and were dropped
└── StoreError                  the store could not carry out an operation
    ├── StoreFullError          … the disk is full
    ├── StoreFailedError        … a write failed; the store is read-only from now on
    ├── StoreReadError          … stored data cannot be read now; nothing has changed
    ├── StoreLockedError        … another process owns the directory
    └── StoreFormatError        … its format is from a version we cannot read
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "AckUnknownError",
    "AuthorizationError",
    "BucketNotFoundError",
    "BufferFullError",
    "ConfigurationError",
    "ConnectFailedError",
    "ConnectionClosedError",
    "ConsumerNotFoundError",
    "DisconnectedError",
    "DisconnectedUnknownError",
    "HandlerFailedError",
    "HeadraceError",
    "HeartbeatMissedError",
    "InvalidSubjectError",
    "JetStreamApiError",
    "LimitExceededError",
    "NoRespondersError",
    "OutcomeUnknownError",
    "ProtocolError",
    "PullError",
    "RequestTimeoutError",
    "ServerError",
    "ServiceError",
    "SlowConsumerError",
    "SnapshotFormatError",
    "StoreError",
    "StoreFailedError",
    "StoreFormatError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadError",
    "StreamExistsError",
    "StreamNotFoundError",
    "TimeoutUnknownError",
    "UnsentError",
    "WrongLoopError",
]


class HeadraceError(Exception):
    """The root: ``except HeadraceError`` catches every error that Headrace raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints of it."""
        from .notebook import traceback_lines

        return traceback_lines(self)


class ConfigurationError(HeadraceError, ValueError):
    """A setting is wrong. The text names the setting and what is accepted."""


class InvalidSubjectError(HeadraceError, ValueError):
    """A subject or subject pattern is malformed."""


class ProtocolError(HeadraceError):
    """The peer sent bytes that are not the NATS protocol.

    ``wire_text`` is the text of the ``-ERR`` that a server sends before it closes the connection.
    """

    def __init__(self, message: str, *, wire_text: str = "Unknown Protocol Operation") -> None:
        super().__init__(message)
        self.wire_text = wire_text


class LimitExceededError(ProtocolError):
    """The peer sent more than a limit of the protocol allows."""


class ConnectionClosedError(HeadraceError, ConnectionError):
    """The connection is closed and will not be re-established."""


class AuthorizationError(ConnectionClosedError):
    """The server rejected the credentials."""


class ConnectFailedError(ConnectionClosedError):
    """None of the servers could be reached."""


class DisconnectedError(HeadraceError, ConnectionError):
    """There is no connection, or it was lost before the answer came. The client is restoring it.

    A publish or a request that may have been sent raises its subclass DisconnectedUnknownError, and this
    one if it was not sent.
    """


class BufferFullError(HeadraceError):
    """The unsent output has reached its limit. Nothing of the rejected message was queued."""


class ServerError(HeadraceError):
    """The server sent ``-ERR``; the text is the server's."""


class RequestTimeoutError(HeadraceError, builtins.TimeoutError):
    """No answer came in time. It is Python's TimeoutError, too.

    A publish or a request that may have been sent raises its subclass TimeoutUnknownError, and this one if
    it was not sent.
    """


class OutcomeUnknownError(HeadraceError):
    """It was sent, and no answer came: the server may have done it or not.

    A publish with a ``msg_id`` can be sent again: a stream that has it stores it no second time.
    """


class TimeoutUnknownError(OutcomeUnknownError, RequestTimeoutError):
    """It was sent, and no answer came in time: the server may have done it or not, or may yet do it."""


class DisconnectedUnknownError(OutcomeUnknownError, DisconnectedError):
    """It was sent, and the connection was lost before the answer came: it may have been done or not."""


class AckUnknownError(DisconnectedUnknownError):
    """Whether a message is acknowledged is not known, and its reply subject is not asked again: the server
    was restarted, or left for another one, since the message was delivered. There the same subject may
    mean another delivery of the message, to somebody else. If it is not acknowledged, it comes again.

    Attributes:
        asked: False: nothing was sent. If it is acknowledged all the same, that was not by this call.
    """

    def __init__(self, text: str, *, asked: bool = True) -> None:
        super().__init__(text)
        self.asked = asked


class UnsentError(HeadraceError):
    """The connection was closed or drained before messages could be sent. They are lost.

    Attributes:
        count: how many messages.
        subjects: those of the first few.
    """

    def __init__(self, text: str, count: int = 0, subjects: tuple[str, ...] = ()) -> None:
        super().__init__(text, count, subjects)
        self.count = count
        self.subjects = subjects

    def __str__(self) -> str:
        return str(self.args[0])


class NoRespondersError(HeadraceError):
    """The request has no responders: no subscriber on its subject (status 503)."""


class ServiceError(HeadraceError):
    """Who answered a request says that it failed.

    A handler raises it to tell its requester; what else it raises arrives as one with code 500 that names
    the class of the error, and no more of it.

    Attributes:
        code: a number of the service's choice, as 404.
        description: a sentence.
        payload: what came with it.
    """

    def __init__(self, code: int, description: str, payload: bytes = b"") -> None:
        super().__init__(code, description, payload)
        self.code = code
        self.description = description
        self.payload = payload

    def __str__(self) -> str:
        return f"{self.description} (code {self.code})"


class JetStreamApiError(HeadraceError):
    """The server rejected a JetStream request or publish.

    Attributes:
        code: the HTTP-like status (400, 404, 500, 503).
        err_code: the JetStream error number, for example 10059; ``headrace.ErrorCode`` has their names.
        description: the server's sentence.
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(code, err_code, description)
        self.code = code
        self.err_code = err_code
        self.description = description

    def __str__(self) -> str:
        return f"{self.description} (code {self.code}, err_code {self.err_code})"


class ConsumerNotFoundError(JetStreamApiError):
    """There is no consumer of this name (``err_code`` 10014)."""


class StreamExistsError(JetStreamApiError):
    """There is a stream of this name, and its settings are not those asked for (``err_code`` 10058).

    Attributes:
        differences: each setting that differs, the value there and the one asked for; empty if the server
            did not tell in time.
    """

    def __init__(
        self,
        code: int,
        err_code: int,
        description: str,
        differences: Mapping[str, tuple[object, object]] = MappingProxyType({}),
    ) -> None:
        super().__init__(code, err_code, description)
        self.args = (code, err_code, description, dict(differences))
        self.differences = dict(differences)

    def __str__(self) -> str:
        if not self.differences:
            return super().__str__()
        told = (
            f"{name} is {there!r}, not {asked!r}"
            for name, (there, asked) in self.differences.items()
        )
        return f"{super().__str__()}: {'; '.join(told)}"


class StreamLeftoversError(HeadraceError):
    """A stream that was just made has messages, all older than it is: of a deleted stream of its name.

    nats-server does so where a name is deleted twice within the time that it takes to remove the files of the
    first. They have sequences ``first_seq`` to ``last_seq``. Comes as an event. A stream that somebody else
    restored from a backup while its creation was asked for looks the same.
    """

    def __init__(self, stream: str, messages: int, first_seq: int, last_seq: int) -> None:
        super().__init__(stream, messages, first_seq, last_seq)
        self.stream = stream
        self.messages = messages
        self.first_seq = first_seq
        self.last_seq = last_seq

    def __str__(self) -> str:
        return (
            f"stream {self.stream!r} has just been made, and has messages that are older than it is: "
            f"{self.messages}, sequences {self.first_seq} to {self.last_seq}. Unless a backup was restored, "
            f"the server has left them of a deleted stream: purge it below {self.last_seq + 1}, or delete it "
            "and make it again some seconds later"
        )


class StreamNotFoundError(JetStreamApiError):
    """There is no stream of this name (``err_code`` 10059)."""


class BucketNotFoundError(StreamNotFoundError):
    """There is no bucket of this name: no stream stands behind it (``err_code`` 10059)."""


class PullError(HeadraceError):
    """A pull request ended with an error status: ``code`` and ``description`` as sent."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(code, description)
        self.code = code
        self.description = description

    def __str__(self) -> str:
        return f"{self.code} {self.description}"


class HeartbeatMissedError(HeadraceError):
    """No message and no heartbeat came for twice a pull's idle heartbeat. ``consume`` pulls again."""


class WrongLoopError(HeadraceError):
    """A connection was used in another event loop than the one it was made in, or that one is closed; or it
    was to be made where no event loop of asyncio runs.

    Nothing was sent.
    """


class HandlerFailedError(HeadraceError):
    """A callback of a consume, or a member's handler, failed, and the policy was to stop. ``__cause__`` is
    what it raised."""


class SlowConsumerError(HeadraceError):
    """Messages arrived faster than they were processed, and reached the limit in the text."""


class SnapshotFormatError(HeadraceError, ValueError):
    """A backup is damaged, cut off or of a form that is not known. The text says what of it."""


class StoreError(HeadraceError):
    """The store could not carry out an operation."""


class StoreFullError(StoreError):
    """The disk is full. Nothing of the rejected batch was kept; reads and deletes still work."""


class StoreFailedError(StoreError):
    """A write or sync failed. The store is read-only until the process is restarted."""


class StoreReadError(StoreError):
    """Stored data cannot be read at the moment. Nothing has changed, and a retry may succeed.

    Data that can be read but does not match its checksum is different: it is reported and skipped.

    Attributes:
        path: the file.
        errno: the system's error number, as in the module ``errno``.
        removed: sequences that were removed before the error, by a call that removes many one by one.
    """

    def __init__(self, text: str, path: str = "", errno: int = 0) -> None:
        self.path = path
        self.errno = errno
        self.removed: list[int] = []
        super().__init__(text)


class StoreLockedError(StoreError):
    """Another process owns the store directory."""


class StoreFormatError(StoreError):
    """The directory was written in a format that this version cannot read."""
