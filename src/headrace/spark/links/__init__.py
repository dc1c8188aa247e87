"""Blocking connections to servers, for processes without an event loop, and what is asked over them.

``link`` is one connection, ``pool`` keeps some between the tasks of a worker process. ``control`` has the
calls of a stream's API, ``retried_calls`` makes them again on a new connection; how long a server may be away
is a ``ServerPatience`` (``outages``). ``dead_letters`` sends the source's and the sink's.
"""
