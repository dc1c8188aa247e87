"""What a process of a test's own does first: ``preexec_fn`` of those that lead a session.

A signal to the group of whoever runs the tests does not reach them: they would outlive tests that are killed.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

__all__ = ["end_with_us", "end_with_us_and_hear_ctrl_c"]

_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>
_libc: Final = ctypes.CDLL(None, use_errno=True)


def end_with_us() -> None:
    """End when the thread ends that starts it, however that ends; elsewhere than on Linux do nothing."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_us_and_hear_ctrl_c() -> None:
    """The same; a suite that is run in a shell's background ignores Ctrl-C, and its children would, too."""
    end_with_us()
    signal.signal(signal.SIGINT, signal.default_int_handler)
