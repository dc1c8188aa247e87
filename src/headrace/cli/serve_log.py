"""Log lines in nats-server's shape, which test harnesses and log collectors know how to read."""

from __future__ import annotations

import logging
import os
import sys
from datetime import datetime
from typing import Final

__all__ = ["LogFormatter", "set_up_logging"]

_LABELS: Final = {
    logging.DEBUG: "DBG",
    logging.INFO: "INF",
    logging.WARNING: "WRN",
    logging.ERROR: "ERR",
    logging.CRITICAL: "FTL",
}


class LogFormatter(logging.Formatter):
    """``[pid] YYYY/MM/DD hh:mm:ss.uuuuuu [INF] text``"""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%Y/%m/%d %H:%M:%S.%f")
        label = _LABELS.get(record.levelno, "TRC")
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"[{os.getpid()}] {moment} [{label}] {text}"


def set_up_logging(*, debug: bool) -> None:
    """Send the log of Headrace and of the event loop to stderr. For a process of our own only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter())
    for name, level in (
        ("headrace", logging.DEBUG if debug else logging.INFO),
        ("asyncio", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
