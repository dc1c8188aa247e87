"""The brain of the broker. Deterministic: clock, randomness, timers and disk are handed in.

Rooms, each knowing only those below it:

``hub``
    one deterministic object around everything else; begin here
``monitor``
    what the broker shows of itself, over HTTP and ``$SYS.REQ.…``
``accounts``
    worlds of subjects, and what they export to and import from each other
``jetstream``
    streams, consumers and their API
``net``
    sessions, and the router that takes a message to its receivers
``auth``
    who a client is, and what it may do

Below all of them are single files: ``ports`` (what the core is handed), ``options``, ``peer`` (what is known
of a client), ``budget``, ``timers`` and ``server_headers``.
"""

from __future__ import annotations
