"""``headrace doctor``: what is wrong here, and the command that mends it.

``findings`` says what a finding is; ``machine`` looks at this machine, ``server`` at the server, ``streams``
at what is in it.
"""

from __future__ import annotations

from .command import doctor

__all__ = ["doctor"]
