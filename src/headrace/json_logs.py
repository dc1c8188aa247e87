"""Log lines as JSON documents, one a line, for whoever collects logs.

::

    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["JsonFormatter"]

_TRACING: Final = "headrace.client.tracing"
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line.

    Its names are ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``; ``error`` with the traceback,
    if there is one; ``trace_id`` and ``span_id`` inside a trace; then what was given as ``extra``, as text
    where JSON has no such value.

    Args:
        fields: names and values that each line has beside, as ``{"service": "mill"}``.
    """

    def __init__(self, fields: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._fields = dict(fields or {})

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        line |= _trace() | self._fields
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        return json.dumps(line, default=str, ensure_ascii=False)


def _trace() -> dict[str, str]:
    tracing = sys.modules.get(_TRACING)  # only who traces has loaded it
    context = None if tracing is None else tracing.current()
    return {} if context is None else {"trace_id": context.trace_id, "span_id": context.span_id}
