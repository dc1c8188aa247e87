"""What an operator may choose, and how configuration files say it.

``options`` has every setting, checked in one place; begin there. ``syntax`` reads nats-server's format
into values that know their place, ``fields`` takes typed fields from them and refuses the rest by name.
The other files read one table each. Nothing here opens a socket.
"""

from __future__ import annotations
