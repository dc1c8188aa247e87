"""The errors that end the demo early, each as one sentence that says what to do."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from ..errors import HeadraceError, StoreError, StoreFullError, StoreLockedError

_OURS_IN_A_TRACEBACK = re.compile(r"^(?:E\s+)?headrace\.[\w.]+Error_?: (.+)$", re.MULTILINE)
_FULL = ("No space left on device", "Disk quota exceeded", "ENOSPC")


class DemoError(HeadraceError):
    """The demo cannot continue; the text is one sentence for the user."""


def explain(error: BaseException, directory: Path, log: Path) -> str:
    """One sentence about an error."""
    text = str(error)
    if isinstance(error, DemoError):
        return text
    if _is_full(error, text):
        return (
            f"The disk that holds {directory} is full; make room and run the same command again, it goes on "
            "where it stopped."
        )
    if isinstance(error, StoreLockedError):
        return f"Another demo is using {directory}; wait for it to end, or choose another --dir."
    if isinstance(error, StoreError):
        return f"The broker's files in {directory} cannot be used: {_sentence(text)}"
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"{error.filename or directory} cannot be written; choose another place with --dir."
    ours = _OURS_IN_A_TRACEBACK.findall(text)
    if ours:
        return f"Spark could not read the stream: {_sentence(ours[-1])} --reset begins anew."
    if type(error).__module__.startswith(("pyspark", "py4j")):
        return f"Spark gave up ({_first_line(text)}); its own words are in {log}."
    if isinstance(error, (HeadraceError, OSError)):
        return _sentence(text)
    return f"Unexpected: {type(error).__name__}: {_first_line(text)}; details may be in {log}."


def _is_full(error: BaseException, text: str) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return isinstance(error, StoreFullError) or any(words in text for words in _FULL)


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line if len(line) <= 200 else line[:197] + "..."


def _sentence(text: str) -> str:
    line = _first_line(text) if len(text) > 500 else " ".join(text.split())
    return line if line.endswith((".", "!")) else line + "."
