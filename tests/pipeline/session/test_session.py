from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from headrace.errors import ConfigurationError
from headrace.pipeline.session import session


def test_settings_that_java_or_spark_refuse_are_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setattr(session, "shielded_context", refused)
    log = tmp_path / "checkpoint" / "spark.log"
    with pytest.raises(ConfigurationError) as raised:
        session.start_session("x", "local[1]", {}, log)
    said = str(raised.value)
    assert said.startswith("Spark does not start: ")
    assert "Java gateway process exited" in said
    assert f"[spark.conf]; {log} has more" in said
