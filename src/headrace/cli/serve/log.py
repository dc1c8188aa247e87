"""Log lines in nats-server's format, which test harnesses can parse, or as JSON, for log collectors."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from ...broker.server.connections.tracing import TRACE, show_payloads
from ...errors import ConfigurationError
from ...files import opened

_LABELS: Final = {
    logging.DEBUG: "DBG",
    logging.INFO: "INF",
    logging.WARNING: "WRN",
    logging.ERROR: "ERR",
    logging.CRITICAL: "FTL",
}
_NAMES: Final = ("headrace", "asyncio")
_TRACING: Final = "headrace.broker.trace"
FORMATS: Final = ("text", "json")


class LogFormatter(logging.Formatter):
    """``[pid] YYYY/MM/DD hh:mm:ss.uuuuuu [INF] text``; with ``utc`` not in local time; or without the
    time.
    """

    def __init__(self, *, time: bool = True, utc: bool = False) -> None:
        super().__init__()
        self._time = time
        self._zone = UTC if utc else None

    def format(self, record: logging.LogRecord) -> str:
        moment = ""
        if self._time:
            at = datetime.fromtimestamp(record.created, self._zone)
            moment = at.strftime("%Y/%m/%d %H:%M:%S.%f ")
        label = _LABELS.get(record.levelno, "TRC")
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"[{os.getpid()}] {moment}[{label}] {text}"


def set_up_logging(
    *,
    debug: bool,
    trace: bool = False,
    traced_bytes: int | None = None,
    file: str | None = None,
    time: bool = True,
    utc: bool = False,
    as_json: bool = False,
) -> None:
    """Send the log of Headrace and of the event loop to ``file`` or stderr. For our own process only.

    With ``trace`` the protocol of connections made from now on is logged, too, with so many bytes of each
    message (0: all of them). With ``as_json`` each line is a JSON document, which always has the time in UTC.

    Raises ConfigurationError if the file cannot be written; the log then stays where it is.
    """
    before = list(logging.getLogger(_NAMES[0]).handlers)
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        try:
            handler = _LogFile(file, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"log_file: cannot write {file}: {error.strerror}") from error
    handler.setFormatter(_json_formatter() if as_json else LogFormatter(time=time, utc=utc))
    for name, level in zip(
        _NAMES, (logging.DEBUG if debug else logging.INFO, logging.WARNING), strict=True
    ):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
    logging.getLogger(_TRACING).setLevel(TRACE if trace else logging.WARNING)
    show_payloads(traced_bytes)
    for old in before:
        if isinstance(old, logging.FileHandler):
            old.close()


class _LogFile(logging.FileHandler):
    """A log that its owner alone can read, where it is made here: traces show payloads."""

    def _open(self) -> IO[str]:  # type: ignore[override]
        return opened(Path(self.baseFilename), "a")


def _json_formatter() -> logging.Formatter:
    from ...json_logs import JsonFormatter  # most starts need it not

    logging.addLevelName(TRACE, "TRACE")
    return JsonFormatter({"pid": os.getpid()})


def reopen_log() -> bool:
    """Reopen the log file, after another program has moved it away; False if there is none."""
    found = False
    for handler in logging.getLogger(_NAMES[0]).handlers:
        if isinstance(handler, logging.FileHandler):
            handler.close()  # the next line opens it again, under its name
            found = True
    return found
