"""What processes that tests start inherit, and what those do first that lead a session (``preexec_fn``).

A signal to the group of whoever runs the tests does not reach them: they would outlive tests that are killed.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

__all__ = ["end_with_us", "hear_ctrl_c"]

_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>
_libc: Final = ctypes.CDLL(None, use_errno=True)


def end_with_us() -> None:
    """End when the thread ends that starts it, however that ends; elsewhere than on Linux do nothing."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def hear_ctrl_c() -> None:
    """Hear SIGINT also where a script runs the suite in its background: every process would inherit that it
    is ignored, and the tests send it to some."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
