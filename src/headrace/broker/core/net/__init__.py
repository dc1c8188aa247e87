"""The server's end of connections, without sockets: sessions, and the router between them.

It decides who receives a message, what a client may say now, and when it has to go. It is handed a
``Host`` (the hub), bytes or frames by ``Session.receive``, and sinks by ``Router.add_sink``. Begin with
``session`` (what becomes of input), then ``router`` (who receives a message) and ``output`` (what waits
to be written). The states of a session, and what leads from one to the next, are a table there.
"""

from __future__ import annotations
