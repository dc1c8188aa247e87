"""The settings of a connection by keyword: the types of ``connect(…)``.

Written by ``scripts/make-keywords`` from ``Options``: change the fields there.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from ...field_docs import described
from ..events import Event


@described
class ConnectOptions(TypedDict, total=False):
    """The keywords of ``connect``: the fields of ``Options``."""

    name: str
    """Shown by the server in its monitoring; "" by default."""

    user: str
    """The name to log in with; "" by default. Credentials in a server's URL come first."""

    password: str
    """The password of ``user``; "" by default."""

    token: str
    """A token to log in with, instead; "" by default."""

    nkey_seed: str
    """A user's NKEY seed (``SU…``), instead; "" by default."""

    credentials_file: str | Path
    """A file with a user's JWT and NKEY seed (``.creds``), instead; read again for each connection. "" by
    default."""

    tls: ssl.SSLContext | bool
    """True: TLS with the system's trust store. A context: that one. Also on when the URL says ``tls://``
    or the server demands it. False by default."""

    tls_first: bool
    """Whether TLS starts before the server says a word (its ``handshake_first``); False by default."""

    tls_hostname: str
    """The name the certificate must carry, when it is not the URL's host; "" by default."""

    connect_timeout: float
    """Seconds for one server: TCP, TLS and the handshake together; 2 by default."""

    reconnect: bool
    """Whether a lost connection is restored; False: the first loss closes it for good. True by default."""

    reconnect_wait: float
    """Seconds of the first pause before a server is tried again, 0.1 by default; each next one is twice as
    long, but in the first two seconds no longer than 0.25 …"""

    reconnect_wait_max: float
    """… up to this many seconds, 5 by default, and has a random part, so that clients do not return all at
    once."""

    max_reconnect_attempts: int
    """Attempts per server and outage before it is given up; -1, the default: never."""

    retry_first_connect: bool
    """Whether ``connect`` keeps trying as a reconnect does, instead of failing after one round; False by
    default."""

    randomize_servers: bool
    """Whether servers are tried in random order, not in the order given; True by default."""

    discover_servers: bool
    """Whether servers named by other servers join the list; True by default."""

    ping_interval: float
    """Seconds between pings to the server; 120 by default."""

    max_pings_out: int
    """The connection counts as lost after this many unanswered pings; 2 by default."""

    ping_timeout: float
    """Seconds, 4 by default, that the answer to a ping may take which is sent at once when a call was not
    answered in time. Then the connection counts as lost, if nothing else shows that the server is there."""

    outbound_bytes: int
    """Bytes of unsent output above which ``await publish`` waits, 8 MiB by default; four times as much is
    the hard limit, at which ``publish_nowait`` raises BufferFullError."""

    reconnect_buffer_bytes: int
    """Bytes that may be published while disconnected, 8 MiB by default; one message more raises
    BufferFullError. 0: publishing while disconnected always does."""

    fail_while_disconnected: bool
    """Whether what is published, requested or called while disconnected raises DisconnectedError at once,
    instead of waiting for the next connection; False by default. Acknowledgements wait even so."""

    request_timeout: float
    """Seconds that a request and a call of the API wait for an answer; 5 by default."""

    delivery_timeout: float
    """Seconds for which what waits for a leader, in a cluster, is sent again; 120 by default. See
    ``jetstream``."""

    drain_timeout: float
    """Seconds that ``drain`` waits for the takers of messages; 30 by default."""

    close_timeout: float
    """Seconds that ``close`` waits for messages in hand to be handled, 5 by default: callbacks that run, and
    who iterates a consumer. Then such callbacks are cancelled."""

    inbox_prefix: str
    """First tokens of every reply subject, for accounts that permit only their own; ``_INBOX`` by default."""

    echo: bool
    """Whether we receive what we publish ourselves; True by default."""

    tracing: bool
    """Whether what is published while a trace is active carries its context, see ``client.tracing``; False
    by default."""

    on_event: Callable[[Event], object] | None
    """Called for each connection event, on the event loop, see ``events``; None by default."""
