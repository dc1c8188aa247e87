"""``headrace doctor``: what is wrong here, and the command that mends it.

``machine`` looks at this machine, ``server`` at the server; ``headrace.doctor`` says what a finding is, and
looks at streams and groups.
"""

from __future__ import annotations

from .command import doctor

__all__ = ["doctor"]
