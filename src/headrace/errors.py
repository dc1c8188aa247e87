"""Every error Headrace raises, as one tree.

HeadraceError
├── ConfigurationError          a setting is wrong: which, where, what is accepted
├── InvalidSubjectError         a subject or pattern is malformed (also a ValueError)
├── ProtocolError               the peer sent bytes that are not the NATS protocol
│   └── LimitExceededError      … or more of them than a limit allows
├── ConnectionClosedError       the connection ended and will not come back
│   ├── AuthorizationError      … because the server refused our credentials
│   └── ConnectFailedError      … because no server could be reached
├── DisconnectedError           the connection was lost before the answer came; it is being restored
├── BufferFullError             output waits to be sent and the limit is reached; nothing was queued
├── ServerError                 the server sent -ERR
├── TimeoutError_               an answer did not come in time (also a builtin TimeoutError)
├── NoRespondersError           nobody listens on the subject of a request
├── JetStreamApiError           the server refused: code, err_code, description
├── PullError                   a pull request ended with an error status
├── HeartbeatMissedError        a pull went silent for twice its idle heartbeat
├── SlowConsumerError           messages came faster than they were taken, and were dropped
└── StoreError                  the disk did not do what was asked
    ├── StoreFullError          … it is full
    ├── StoreFailedError        … it failed; the stream is read-only from here on
    ├── StoreReadError          … something stored cannot be read now; nothing changed by it
    ├── StoreLockedError        … another process owns the directory
    └── StoreFormatError        … it was written by a version we cannot read
"""

from __future__ import annotations

import builtins

__all__ = [
    "AuthorizationError",
    "BufferFullError",
    "ConfigurationError",
    "ConnectFailedError",
    "ConnectionClosedError",
    "DisconnectedError",
    "HeadraceError",
    "HeartbeatMissedError",
    "InvalidSubjectError",
    "JetStreamApiError",
    "LimitExceededError",
    "NoRespondersError",
    "ProtocolError",
    "PullError",
    "ServerError",
    "SlowConsumerError",
    "StoreError",
    "StoreFailedError",
    "StoreFormatError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadError",
    "TimeoutError_",
]


class HeadraceError(Exception):
    """The root: ``except HeadraceError`` catches everything Headrace raises on purpose."""


class ConfigurationError(HeadraceError, ValueError):
    """A setting is wrong. The text names the setting and what is accepted."""


class InvalidSubjectError(HeadraceError, ValueError):
    """A subject or subject pattern is malformed."""


class ProtocolError(HeadraceError):
    """The peer sent bytes that are not the NATS protocol.

    ``wire_text`` is what a server answers in ``-ERR`` before it closes the connection.
    """

    def __init__(self, message: str, *, wire_text: str = "Unknown Protocol Operation") -> None:
        super().__init__(message)
        self.wire_text = wire_text


class LimitExceededError(ProtocolError):
    """The peer sent more than a limit of the protocol allows."""


class ConnectionClosedError(HeadraceError, ConnectionError):
    """The connection is closed and will not be re-established."""


class AuthorizationError(ConnectionClosedError):
    """The server refused the credentials."""


class ConnectFailedError(ConnectionClosedError):
    """No server of the list could be reached."""


class DisconnectedError(HeadraceError, ConnectionError):
    """The connection was lost before the answer came: the server may or may not have acted.

    The connection itself is being restored.
    """


class BufferFullError(HeadraceError):
    """Output waits to be sent and has reached its limit: nothing of the refused message was queued."""


class ServerError(HeadraceError):
    """The server sent ``-ERR``; the text is the server's."""


class TimeoutError_(HeadraceError, builtins.TimeoutError):  # noqa: N801, N818
    """An answer did not come in time. Exported as ``headrace.TimeoutError``."""


class NoRespondersError(HeadraceError):
    """Nobody listens on the subject of the request (status 503)."""


class JetStreamApiError(HeadraceError):
    """The server refused a JetStream request or publish.

    Attributes:
        code: the HTTP-like status (400, 404, 500, 503).
        err_code: the JetStream error number, for example 10059.
        description: the server's sentence.
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(code, err_code, description)
        self.code = code
        self.err_code = err_code
        self.description = description

    def __str__(self) -> str:
        return f"{self.description} (code {self.code}, err_code {self.err_code})"


class PullError(HeadraceError):
    """A pull request ended with an error status: ``code`` and ``description`` as sent."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(code, description)
        self.code = code
        self.description = description

    def __str__(self) -> str:
        return f"{self.code} {self.description}"


class HeartbeatMissedError(HeadraceError):
    """Nothing, not even a heartbeat, came for twice a pull's idle heartbeat; it is pulled anew."""


class SlowConsumerError(HeadraceError):
    """Messages came faster than they were taken; the oldest limit in the text was reached."""


class StoreError(HeadraceError):
    """The store could not do what was asked."""


class StoreFullError(StoreError):
    """No room: nothing of the refused batch was kept, reads and deletes still work."""


class StoreFailedError(StoreError):
    """Writing or syncing failed: the store is read-only until the process is restarted."""


class StoreReadError(StoreError):
    """Something stored cannot be read now. Nothing has changed, and reading it again may work.

    What can be read and does not match its checksum is another thing: it is reported, and passed over.

    Attributes:
        path: the file.
        errno: what the system said, as in the module ``errno``.
        removed: sequences that had been removed before, by a call that removes many one by one.
    """

    def __init__(self, text: str, path: str = "", errno: int = 0) -> None:
        self.path = path
        self.errno = errno
        self.removed: list[int] = []
        super().__init__(text)


class StoreLockedError(StoreError):
    """Another process owns the store directory."""


class StoreFormatError(StoreError):
    """The directory was written in a format this version cannot read."""
