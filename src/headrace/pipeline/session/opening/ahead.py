"""What a run imports anyway, imported while Java starts."""

from __future__ import annotations

import importlib
import logging
import threading
from typing import Final

_LOG: Final = logging.getLogger("headrace.pipeline")
_NAMES: Final = (
    "pyspark.sql.session",
    "pyspark.sql.streaming",
    "pyspark.sql.functions",
    "pyspark.cloudpickle",
    "headrace.spark.source",
    "headrace.spark.sink.writer",
)


def import_ahead() -> threading.Thread:
    """Begin to import them on a thread."""
    thread = threading.Thread(target=_import, name="imports", daemon=True)
    thread.start()
    return thread


def _import() -> None:
    for name in _NAMES:
        try:
            importlib.import_module(name)
        except Exception as error:  # whoever needs it says what is wrong
            _LOG.debug("%s was not imported: %s", name, error)
            return
