"""Log lines as JSON: one document a line, whatever was logged."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import tracing
from headrace.json_logs import JsonFormatter


class Log:
    """A logger and what it wrote."""

    def __init__(self, **fields: Any) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(JsonFormatter(fields))
        self.logger = logging.getLogger("test.json")
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.handler)

    def last(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.stream.getvalue().splitlines()[-1])
        return document


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log(service="mill")
    yield log
    log.logger.removeHandler(log.handler)


def test_a_line_is_a_document(log: Log) -> None:
    log.logger.warning("%d apples\nof ä", 2, extra={"order": 17, "where": object})
    line = log.last()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "logger": "test.json",
        "message": "2 apples\nof ä",
        "service": "mill",
        "order": 17,
        "where": "<class 'object'>",
    }
    assert log.stream.getvalue().count("\n") == 1


def test_an_error_brings_its_traceback(log: Log) -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        log.logger.exception("it failed", stack_info=True)
    line = log.last()
    assert line["error"].endswith("KeyError: 'lost'")
    assert "test_json_logs.py" in line["stack"]
    assert log.stream.getvalue().count("\n") == 1


def test_a_line_inside_a_trace_says_which(log: Log) -> None:
    context = tracing.start()
    with tracing.use(context):
        log.logger.info("inside")
    assert (log.last()["trace_id"], log.last()["span_id"]) == (context.trace_id, context.span_id)
    log.logger.info("outside")
    assert "trace_id" not in log.last()


def test_who_does_not_trace_loads_no_client() -> None:
    program = (
        "import sys, logging, headrace.json_logs as j;"
        "print(j.JsonFormatter().format(logging.makeLogRecord({'msg': 'x'})));"
        "print(sorted(m for m in sys.modules if m.startswith('headrace.client')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    document, loaded = done.stdout.splitlines()
    assert json.loads(document)["message"] == "x"
    assert loaded == "[]"
