"""What an error of Spark says, without the pages around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_OURS: Final = re.compile(
    r"(?:^(?:E\s+)?|: )headrace\.[\w.]{1,150}?\w{0,60}Error_?: (.+)$", re.MULTILINE
)
_PYTHON: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Warning)): (.+)$", re.MULTILINE)
_FRAME: Final = re.compile(r'^\s+File "(.+?)", line (\d+),? in (\S+)$', re.MULTILINE)
_CRASHED: Final = re.compile(r"^Current thread .*\(most recent call first\):$", re.MULTILINE)
_THEIRS: Final = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<|/headrace/|\.zip/")
_USER_RAISED: Final = re.compile(
    r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)
_WHERE: Final = re.compile(r"(?:; line \d+ pos \d+;?.*)| SQLSTATE: \w+", re.DOTALL)
_FRONT: Final = re.compile(
    r"^(?:\[STREAM_FAILED\] )?Query .*?\[id = [^\]]*\] terminated with exception: |"
    r"^Job aborted due to stage failure: .*?most recent failure: Lost task [^(]*\([^)]*\)[^:]*: |"
    r"^An error occurred while calling [\w.$]+\.?\s*:? ?|^(?:[a-z]\w*\.)+(?:[A-Z]\w*(?:Exception|Error))?: |"
    r"^\[FOREACH_BATCH_USER_FUNCTION_ERROR\] .*?Reason: |"
    r"^An exception was raised by the Python Proxy\. Return Message: ",
    re.DOTALL,
)
_JAVA_CAUSE: Final = re.compile(r"^Caused by: (?:[\w$]+\.)+([\w$]+)(?:: (.+))?$", re.MULTILINE)
_SQLSTATE: Final = re.compile(r"(?: SQLSTATE: \w+)+$")
_PAGES: Final = re.compile(r"\n(?:=== Streaming Query ===|Driver stacktrace:).*", re.DOTALL)
LONGEST: Final = 4_000
"""Characters of a sentence: a text that is longer is a document that somebody raised."""
_DETAIL: Final = 300
_HALF: Final = 32_000
_CARRIERS_MAX: Final = 20
_UNSHOWN: Final = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]")
"""What ends a string in C, moves a terminal's cursor, or is no Unicode."""

_SOURCES: Final = re.compile(
    r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\] sources"
)
_STATE: Final = re.compile(
    r"\[(?:STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|"
    r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA)"
)
_MEMORY: Final = re.compile(r"java\.lang\.OutOfMemoryError(?:: ([^\n]+))?")
_FULL: Final = re.compile(
    r"(?:\s|^)(/[^\s:()'\"]{1,300})[^\n/]{0,300}No space left on device|No space left on device"
)
_WORKER: Final = re.compile(
    r"(Python worker (?:exited unexpectedly|failed to connect back)[^.\n]*)"
)


def text_of(error: BaseException | str) -> str:
    """What an error says, whatever a user's class does: text that can be stored, sent and shown.

    A long one lacks its middle: what failed stands at the beginning or at the end.
    """
    try:
        text = str(error)
    except Exception as failed:
        text = f"{type(error).__name__}, whose text cannot be told ({type(failed).__name__})"
    if len(text) > 2 * _HALF:
        text = f"{text[:_HALF]}\n[...]\n{text[-_HALF:]}"
    return _UNSHOWN.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _text_of_causes(error: BaseException | str) -> str:
    """What Java says of the causes of an error of PySpark, whose own text has the first line alone."""
    found: list[str] = []
    cause = getattr(error, "_cause", None)
    while isinstance(cause, BaseException) and len(found) < _CARRIERS_MAX:
        found += [text_of(cause), text_of(str(getattr(cause, "_stackTrace", "")))]
        cause = getattr(cause, "_cause", None)
    return "\n".join(found)


def sentence_of(error: BaseException | str) -> str:
    """One sentence about an error of Spark, or of ours or a user's that travelled through it."""
    text = text_of(error)
    if known := _known(text) or _known(_text_of_causes(error)):
        return _short(known)
    for pattern in (_USER_RAISED, _OURS):
        found = pattern.findall(text)
        if found:
            return _short(_SQLSTATE.sub("", found[-1]))
    if worker := _WORKER.search(text):
        return _short(
            f"Spark lost a Python worker ({worker[1].strip()[:_DETAIL]}): it was killed, or crashed"
            f"{_at(text)}. Where memory is short, the system kills what is large"
        )
    if "Traceback (most recent call last)" in text:
        raised = _PYTHON.findall(text)
        if raised:
            name, said = raised[-1]
            return _short(f"{name}: {_SQLSTATE.sub('', said)}{_at(text)}")
    return _first_line(error, _PAGES.sub("", text))


def place_in_code(text: str) -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame of a user in the last traceback of a text."""
    if crashed := _CRASHED.search(text):
        return next(_frames(text[crashed.end() :]), None)
    last = text.rpartition("Traceback (most recent call last)")[2]
    return next(iter([*_frames(last)][::-1]), None)


def _frames(text: str) -> Iterator[tuple[str, int, str]]:
    """The frames of users, in the order of a text."""
    for file, line, function in _FRAME.findall(text):
        if not _THEIRS.search(file):
            yield file, int(line), function


def _at(text: str) -> str:
    place = place_in_code(text)
    return f" ({place[0]}:{place[1]}, in {place[2]})" if place else ""


def _known(text: str) -> str:
    """What has a remedy of its own."""
    if counts := _SOURCES.search(text):
        return (
            f"the query read {counts[1]} sources when its checkpoint was made and reads {counts[2]} now: one "
            "came or went. Put it back, or begin a new generation with headrace pipeline reset"
        )
    if _STATE.search(text):
        return (
            "the state in the checkpoint does not fit what the query keeps now. Put the query back, or begin "
            "a new generation with headrace pipeline reset"
        )
    if memory := _MEMORY.search(text):
        what = f" ({memory[1].strip()[:_DETAIL]})" if memory[1] else ""
        return (
            f'Java has run out of memory{what}. Give it more ([spark.conf], "spark.driver.memory" = '
            '"4g"), or let batches be smaller (maxOffsetsPerTrigger)'
        )
    if full := _FULL.search(text):
        return f"no space is left on the disk{f' of {full[1]}' if full[1] else ''}"
    return ""


def _first_line(error: BaseException | str, text: str) -> str:
    name = type(error).__name__ if isinstance(error, BaseException) else ""
    rest = text.strip()
    for _ in range(_CARRIERS_MAX):  # what carried it
        before, rest = rest, _FRONT.sub("", rest, count=1).strip()
        if rest == before:
            break
    first = next((line.strip() for line in rest.splitlines() if line.strip()), "")
    causes = _JAVA_CAUSE.findall(text)
    if causes and (not first or first.startswith("at ")):
        first = ": ".join(filter(None, causes[-1]))
    said = _short(_WHERE.sub("", first))
    is_spark = isinstance(error, BaseException) and type(error).__module__.startswith(
        ("pyspark", "py4j")
    )
    return said if is_spark and said else ": ".join(filter(None, (name, said)))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
