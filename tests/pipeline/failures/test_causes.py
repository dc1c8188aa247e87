from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from headrace.errors import AuthorizationError, ConfigurationError, ConnectFailedError
from headrace.pipeline.failures.causes import SparkGoneError, cause_of
from headrace.pipeline.model import PipelineError, Place, Problem

ENDED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
LOST_TASK = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task "
    "0.0 in stage 0.0 (TID 0) (localhost executor driver): "
)
FOREACH = (
    "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Reason: An exception was raised by the Python "
    "Proxy. Return Message: "
)
STREAMING = (
    "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform "
    "latestOffset: "
)
RAISED = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
TRACE = 'Traceback (most recent call last):\n  File "/home/me/views.py", line 4, in half\n    1/0\n'
PAGES = " SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: [id = 1]\nThread State: RUNNABLE\n"


class StreamingQueryException(Exception):
    """As Spark's own, which needs no Spark here."""


StreamingQueryException.__module__ = "pyspark.errors"


class AnalysisException(StreamingQueryException):
    pass


AnalysisException.__module__ = "pyspark.errors"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            LOST_TASK
            + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). See\n\tat x",
            "worker",
            "Spark lost a Python worker (Python worker exited unexpectedly (crashed))",
        ),
        (
            LOST_TASK
            + "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat x",
            "worker",
            "Python worker failed to connect back",
        ),
        (
            FOREACH
            + f"{TRACE}py4j.protocol.Py4JJavaError: An error occurred\n: "
            + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n\tat x",
            "worker",
            "Spark lost a Python worker",
        ),
        (
            RAISED + TRACE + "ConnectionResetError: Connection reset by peer",
            "other",
            "ConnectionResetError: Connection reset by peer (/home/me/views.py:4, in half)",
        ),
        (
            RAISED + TRACE + "ZeroDivisionError: division by zero",
            "other",
            "ZeroDivisionError: division by zero (/home/me/views.py:4, in half)",
        ),
        (
            RAISED
            + "headrace.errors.ConnectFailedError: cannot reach a NATS server; nats://a: gone",
            "away",
            "cannot reach a NATS server; nats://a: gone",
        ),
        (
            STREAMING + "headrace.errors.RequestTimeoutError: no answer within 5 s",
            "away",
            "no answer within 5 s",
        ),
        (
            RAISED + "headrace.errors.AuthorizationError: the server refused the connection",
            "mistake",
            "the server refused the connection",
        ),
        (
            RAISED + "headrace.spark.sink.markers.FencedError: another run writes",
            "mistake",
            "another run writes",
        ),
        (
            "[CAST_INVALID_INPUT] The value 's' of the type cannot be cast",
            "other",
            "[CAST_INVALID_INPUT] The value 's' of the type cannot be cast",
        ),
        (
            "[USER_RAISED_EXCEPTION] view v: a row fails the expectation 'x'",
            "mistake",
            "view v: a row fails the expectation 'x'",
        ),
        (
            LOST_TASK + "java.lang.OutOfMemoryError: Java heap space\n\tat x",
            "mistake",
            "Java has run out of memory (Java heap space). Give it more",
        ),
        (
            LOST_TASK + "java.io.FileNotFoundException: /data/out/part-1 (No space left on device)",
            "other",
            "no space is left on the disk of /data/out/part-1",
        ),
        (
            LOST_TASK + "java.io.IOException: what it was\n\tat x",
            "other",
            "what it was",
        ),
    ],
)
def test_what_spark_says_has_a_kind_and_a_sentence(text: str, kind: str, said: str) -> None:
    cause = cause_of(StreamingQueryException(ENDED + text + PAGES))
    assert cause.kind == kind
    assert cause.text.startswith(said) or said in cause.text
    assert "STREAM_FAILED" not in cause.text
    assert "\n" not in cause.text


@pytest.mark.parametrize(
    ("text", "is_code"),
    [
        (RAISED + TRACE + "ZeroDivisionError: division by zero", True),
        ("[CAST_INVALID_INPUT] The value 's' cannot be cast", True),
        (LOST_TASK + "java.io.IOException: what it was\n\tat x", False),
        (LOST_TASK + "[TASK_WRITE_FAILED] x java.io.IOException: No space left on device", False),
        (RAISED + "headrace.errors.JetStreamApiError: no leader (503)", False),
        (LOST_TASK + "org.apache.spark.SparkException: Python worker exited unexpectedly", False),
    ],
)
def test_only_what_rows_can_make_fail_is_searched_for_a_message(text: str, is_code: bool) -> None:
    assert cause_of(StreamingQueryException(ENDED + text + PAGES)).is_code is is_code


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("spark.offsets.StreamChangedError", "other"),
        ("spark.sink.markers.StreamResetError", "other"),
        ("spark.offsets.DataLossError", "mistake"),
    ],
)
def test_a_stream_that_changed_under_a_batch_lets_it_run_again_and_one_that_is_another_does_not(
    name: str, kind: str
) -> None:
    text = f"{ENDED}{RAISED}headrace.{name}: stream 'S' was made again{PAGES}"
    found = cause_of(StreamingQueryException(text))
    assert (found.kind, found.is_code) == (kind, False)


CRASH = """org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): Fatal Python error: X

Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 9 in string_at
  File "/home/me/views.py", line 7 in checked
  File "/home/me/views.py", line 4 in tenfold
"""


def test_a_worker_that_crashes_names_the_line_and_is_searched_for_a_message() -> None:
    cause = cause_of(StreamingQueryException(ENDED + LOST_TASK + CRASH + PAGES))
    assert (cause.kind, cause.is_code, cause.is_crash) == ("worker", False, True)
    assert "Fatal Python error: X" in cause.text
    assert "crashed (/home/me/views.py:7, in checked)" in cause.text
    lost = "org.apache.spark.SparkException: Python worker failed to connect back."
    assert not cause_of(StreamingQueryException(ENDED + LOST_TASK + lost)).is_crash


def test_errors_that_were_raised_here_have_a_kind() -> None:
    assert cause_of(ConnectFailedError("nobody there")).kind == "away"
    assert cause_of(AuthorizationError("no")).kind == "mistake"
    assert cause_of(ConfigurationError("no")).kind == "mistake"
    assert cause_of(AnalysisException("[UNRESOLVED_COLUMN] x")).kind == "mistake"
    assert cause_of(RuntimeError("boom")) == ("other", "RuntimeError: boom", False)


@pytest.mark.parametrize(
    "error",
    [
        SparkGoneError("no answer"),
        Py4JNetworkError("An error occurred while trying to connect to the Java server"),
        Py4JError("An error occurred while calling o42.start"),
    ],
)
def test_a_java_that_does_not_answer_has_gone_wherever_that_is_noticed(error: Exception) -> None:
    problem = PipelineError([Problem(Place(__file__, 3), "no")])  # type: ignore[arg-type]
    problem.__cause__ = error
    for each in (error, problem):
        cause = cause_of(each)
        assert (cause.kind, cause.is_code) == ("java", False)
        assert cause.text.startswith("Spark's Java has gone")
    assert cause_of(Py4JError("Method start([]) does not exist")).kind == "other"


def test_a_problem_has_the_kind_of_what_it_is_about_and_its_own_sentence() -> None:
    problem = PipelineError([Problem(Place(__file__, 3), "the view is wrong")])  # type: ignore[arg-type]
    assert cause_of(problem).kind == "mistake"
    problem.__cause__ = StreamingQueryException("java.io.EOFException")
    assert cause_of(problem) == ("worker", "the view is wrong", False)


def test_what_py4j_puts_before_a_java_error_is_left_out() -> None:
    error = StreamingQueryException(
        "An error occurred while calling o208.start.\n: java.lang.IllegalStateException: it is closed\n\tat x"
    )
    assert cause_of(error).text == "it is closed"
