"""``headrace group …``: partitioned consumer groups.

``command`` says which verbs there are, ``verbs`` does those that ask once; ``watch``, ``consume``,
``autoscale`` and ``metrics`` go on until Ctrl-C. ``text`` makes what people read, ``arguments`` reads what
they type.
"""

from __future__ import annotations

from .command import group

__all__ = ["group"]
