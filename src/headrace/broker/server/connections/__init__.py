"""Connections and their share of the event loop.

The ``pump`` makes the ticks of one hub on one loop; begin there. Three kinds of connection bring input to
a session and its output back: ``connection`` (a socket), ``websocket``, and ``inprocess``
(a client in the same loop). All of them are handed the pump, which decides who goes on when there is more
input than time.
"""

from __future__ import annotations
