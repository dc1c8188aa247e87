"""What the broker shows of itself, in nats-server's shapes: no secrets, no cost while nobody asks.

Each page is a function of a ``Monitored`` (the hub as this room sees it) that returns a JSON-ready dict.
The shell serves the pages over HTTP, ``system_services`` over ``$SYS.REQ.…``. Begin with ``server``
(``/varz``, ``/jsz``, ``/accountz``, ``/healthz``), then ``connections``.
"""

from __future__ import annotations
