"""The settings of a connection by keyword: the types of ``connect(…)``.

Written by ``scripts/make-keywords`` from ``Options``: change the fields there.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from ..events import Event


class ConnectOptions(TypedDict, total=False):
    """The keywords of ``connect``: the fields of ``Options``."""

    name: str
    """Shown by the server in its monitoring."""

    user: str
    password: str
    token: str
    """Credentials; those in a server's URL come first."""

    nkey_seed: str
    """A user's NKEY seed (``SU…``), instead."""

    credentials_file: str | Path
    """A file with a user's JWT and NKEY seed (``.creds``), instead; read again for each connection."""

    tls: ssl.SSLContext | bool
    """True: TLS with the system's trust store. A context: that one. Also on when the URL says
    ``tls://`` or the server demands it."""

    tls_first: bool
    """Start TLS before the server says a word (its ``handshake_first``)."""

    tls_hostname: str
    """The name the certificate must carry, when it is not the URL's host."""

    connect_timeout: float
    """For one server: TCP, TLS and the handshake together."""

    reconnect: bool
    """False: the first lost connection closes this one for good."""

    reconnect_wait: float
    """The pause before a server is tried again doubles from here …"""

    reconnect_wait_max: float
    """… up to here, each time with a random part, so that clients do not return all at once."""

    max_reconnect_attempts: int
    """Attempts per server and outage before it is given up; -1: never."""

    retry_first_connect: bool
    """True: ``connect`` keeps trying as a reconnect does, instead of failing after one round."""

    randomize_servers: bool
    discover_servers: bool
    """Whether servers named by other servers join the list."""

    ping_interval: float
    max_pings_out: int
    """With this many unanswered pings the connection counts as lost."""

    outbound_bytes: int
    """Unsent output above which ``await publish`` waits; four times as much is the hard limit, at
    which ``publish_nowait`` raises BufferFullError."""

    reconnect_buffer_bytes: int
    """How much may be published while disconnected; one message more raises BufferFullError.
    0: publishing while disconnected always does."""

    request_timeout: float
    delivery_timeout: float
    """How long what waits for a leader, in a cluster, is sent again; see ``jetstream``."""

    drain_timeout: float
    inbox_prefix: str
    """First tokens of every reply subject, for accounts that permit only their own."""

    echo: bool
    """Whether we receive what we publish ourselves."""

    tracing: bool
    """Whether what is published while a trace is active carries its context; see ``client.tracing``."""

    on_event: Callable[[Event], object] | None
    """Called for each connection event, on the event loop; see ``events``."""
