"""A connection below its face: reaching a server, keeping the link, and handing each message to its receiver.

``session`` is the centre: it owns the current link, the outbox, the routes, and is told what happens to
them; its table says what it may do when. ``reconnect`` and ``servers`` decide which server is tried
next, ``link`` and ``handshake`` make one connection, ``websocket`` and ``inprocess`` are the other ways to
make one. The room knows requests and inboxes, and nothing of streams. It is handed a loop, options and
addresses. Begin with ``session``.
"""
