"""Errors as Spark shows them: our sentence, without the Python frames above it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..errors import HeadraceError

_LOG: Final = logging.getLogger("headrace.spark")

_WORKER: Final = "pyspark.worker_util"  # only Spark's own Python processes import it
_HIDE: Final = (
    "SPARK_HIDE_TRACEBACK"  # Spark's, read when a process of its own reports an exception
)


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Let Spark report an error of ours by its text alone; the frames go to the log at DEBUG.

    What is not ours keeps its traceback: it may be a bug. The process ends with the exception, so nothing
    else is reported without its traceback.
    """
    try:
        yield
    except HeadraceError as error:
        _LOG.debug("%s", error, exc_info=True)
        if _WORKER in sys.modules:
            os.environ.setdefault(_HIDE, "1")
        raise
