"""Where PySpark's own words about an error go."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from headrace.pipeline.session import _log_errors_to


def test_what_pyspark_says_of_an_error_beside_raising_it_goes_to_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    for number in (1, 2):  # another session of the same process has another log
        log = tmp_path / f"{number}.log"
        _log_errors_to(log)
        logging.getLogger("SQLQueryContextLogger").error("no column 'x'")
        assert [json.loads(line)["msg"] for line in log.read_text().splitlines()] == [
            "no column 'x'"
        ]
    assert capsys.readouterr() == ("", "")
