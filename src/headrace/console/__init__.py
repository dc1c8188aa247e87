"""The web console: a page that shows a server's streams, consumers, groups, buckets and jobs.

It is a client like any other: what it shows comes over the JetStream API, so it works with our broker and
with nats-server. Read ``app`` for how it is put together, ``watcher`` for what it looks at and how often,
``routes`` for what each page asks, and ``static`` for the pages themselves, which need no build step.
"""

from __future__ import annotations

from .app import ConsoleServer, create_app
from .servers import OtherServer
from .settings import Settings

__all__ = ["ConsoleServer", "OtherServer", "Settings", "create_app"]
