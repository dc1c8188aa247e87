"""What an error of Spark says, without the pages around it."""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"^(?:E\s+)?headrace\.[\w.]+?\.?\w*Error_?: (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_USER_RAISED: Final = re.compile(
    r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)
_WHERE: Final = re.compile(r"(?:; line \d+ pos \d+;?.*)| SQLSTATE: \w+", re.DOTALL)
LONGEST: Final = 400


_SOURCES: Final = re.compile(
    r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\] sources"
)


_STATE: Final = re.compile(
    r"\[(?:STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|"
    r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA)"
)


def sentence_of(error: BaseException | str) -> str:
    """One sentence about an error of Spark, or of ours or a user's that travelled through it."""
    text = str(error)
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
    for pattern in (_USER_RAISED, _OURS):
        found = pattern.findall(text)
        if found:
            return _short(found[-1])
    if "Traceback (most recent call last)" in text:
        raised = _PYTHON.findall(text)
        if raised:
            name, said = raised[-1]
            return _short(f"{name}: {said}")
    name = type(error).__name__ if isinstance(error, BaseException) else ""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    said = _short(_WHERE.sub("", first))
    is_spark = isinstance(error, BaseException) and type(error).__module__.startswith(
        ("pyspark", "py4j")
    )
    return said if is_spark and said else ": ".join(filter(None, (name, said)))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
