"""What a user's functions raise, however strange it is: a sentence that can be stored, sent and shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.declaring.functions import read_python
from headrace.pipeline.failures.causes import cause_of
from headrace.pipeline.model import PipelineError
from headrace.pipeline.spark_errors import LONGEST, sentence_of

"""What takes so long grows by more than its bytes, however slow the machine is."""


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class NumberError(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class OddError(Exception):
    pass


PIECES = (
    *("Traceback (most recent call last)\n", '  File "', '/u.py", line 1, in f\n', "headrace."),
    *("Error: ", "Job aborted due to stage failure: ", "org.apache.spark.SparkException: ", "\n"),
    *(
        "[USER_RAISED_EXCEPTION] ",
        "Query a [id = b] terminated with exception: ",
        "Caused by: a.B: ",
    ),
    *(
        "Current thread 1 (most recent call first):\n",
        "No space left on device",
        " SQLSTATE: 1",
        "a.",
    ),
    *(
        "Python worker exited unexpectedly",
        "java.lang.OutOfMemoryError: ",
        "\0",
        "\ud800",
        "\x1b[2J",
    ),
)


def is_good(sentence: str) -> bool:
    """Whether it is one line of few characters that any terminal, log and store takes."""
    sentence.encode()
    controls = [each for each in sentence if ord(each) < 32 or 127 <= ord(each) < 160]
    return bool(sentence) and not controls and len(sentence) <= LONGEST + 200


@pytest.mark.parametrize(
    "error",
    [
        MuteError(),
        NumberError(),
        OddError(),
        OddError("a\ud800b"),
        OddError("a\0b\r\nc\x1b[31m\x9b2J\u2028\x85"),
        OddError("x" * 10_000_000),
        OddError(object(), b"\xff"),
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        *(OddError(piece * (1_000_000 // len(piece))) for piece in PIECES),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.timeout(100)  # it is milliseconds, or without end
def test_whatever_is_raised_becomes_a_sentence(error: BaseException) -> None:
    assert is_good(sentence_of(error))
    assert is_good(cause_of(error).signature)


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5)).map("".join))
def test_any_text_becomes_a_sentence(text: str) -> None:
    assert is_good(sentence_of(OddError(text)))
    assert cause_of(OddError(text)).text == sentence_of(OddError(text))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
        (
            "class E(Exception):\n def __str__(self): return 7\nraise E\n",
            "cannot be told (TypeError)",
        ),
        ("raise ValueError('a\\ud800\\0b')\n", r"ValueError: a\xd800\x00b"),
    ],
)
def test_a_file_that_raises_something_strange_is_a_problem_at_its_line(
    tmp_path: Path, code: str, said: str
) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(code)
    with pytest.raises(PipelineError) as caught:
        read_python(file)
    (problem,) = caught.value.problems
    assert said in problem.text
    assert problem.place.line == len(code.splitlines())


class CarriedError(Exception):
    """As PySpark's: what Java says of it is no part of its text."""

    def __init__(self, text: str, trace: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._stackTrace = trace
        self._cause = cause


def test_a_full_disk_and_too_little_memory_are_named_where_java_says_so_of_a_cause_alone() -> None:
    written = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/data/out."

    def carried(by: str) -> str:
        cause = CarriedError(
            "Job aborted.", f"{written}\n\tat a.b(C.java:1)\nCaused by: {by}\n\tat x"
        )
        return sentence_of(CarriedError(written, "\tat q", CarriedError("b", "", cause)))

    assert carried("java.io.IOException: No space left on device") == "no space is left on the disk"
    assert carried("java.lang.OutOfMemoryError: Java heap space").startswith(
        "Java has run out of memory (Java heap space). Give it more"
    )
    assert "TASK_WRITE_FAILED" in carried("java.io.IOException: Permission denied")


def test_a_cause_that_is_its_own_cause_ends() -> None:
    error = CarriedError("boom", "at x")
    error._cause = error
    assert "boom" in sentence_of(error)
