"""``headrace group …``: partitioned consumer groups.

``command`` says which verbs there are, ``commands`` does those that ask once; ``watch``, ``consume``,
``autoscale`` and ``metrics`` go on until Ctrl-C; ``give_back`` lets go of what a Spark query
holds. ``text`` and ``table`` make what people read, ``arguments`` reads what they type.
"""

from __future__ import annotations

from .command import group

__all__ = ["group"]
