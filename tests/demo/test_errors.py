from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headrace.demo.errors import DemoError, explain
from headrace.errors import ConnectionClosedError, StoreFullError, StoreLockedError

HERE = Path("/somewhere")
LOG = HERE / "spark.log"


class SparkError(Exception):
    pass


SparkError.__module__ = "pyspark.errors.exceptions.captured"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DemoError("Do this."), "Do this."),
        (OSError(errno.ENOSPC, "No space left on device"), "is full; make room"),
        (StoreFullError("no room"), "is full; make room"),
        (SparkError("java.io.IOException: No space left on device\n\tat x"), "is full; make room"),
        (StoreLockedError("locked"), "Another demo is using /somewhere"),
        (PermissionError(errno.EACCES, "denied", "/root/x"), "/root/x cannot be written"),
        (
            SparkError(
                "[STREAM_FAILED] …\nTraceback (most recent call last):\n"
                "headrace.spark.offsets.DataLossError: stream 'S' begins at 5 now\n SQLSTATE: X"
            ),
            "stream 'S' begins at 5 now. --reset",
        ),
        (
            SparkError("[SOMETHING] went wrong\nand more"),
            "Spark gave up ([SOMETHING] went wrong); its",
        ),
        (ConnectionClosedError("the broker is gone"), "the broker is gone."),
        (ValueError("odd"), "Unexpected: ValueError: odd"),
    ],
)
def test_whatever_went_wrong_is_one_sentence(error: BaseException, said: str) -> None:
    text = explain(error, HERE, LOG)
    assert said in text
    assert "\n" not in text
    assert "Traceback" not in text
