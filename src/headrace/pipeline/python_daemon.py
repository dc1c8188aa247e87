"""Spark's daemon of Python workers, which leaves SIGTERM to the runner: a batch under way needs its workers.

It ends when Java closes its standard input, and its workers with it. SIGTERM is blocked, not ignored: Spark's
daemon sets handlers of its own, in itself and in each worker. Processes that a worker starts inherit that.
"""

from __future__ import annotations

import signal

from pyspark.daemon import manager

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    manager()
