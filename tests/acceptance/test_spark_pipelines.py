"""The example of a Declarative Pipeline of Spark, as people run it: with ``spark-pipelines``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import peers
from headrace import sync

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark_pipelines"
ORDERS = 20
WITHIN_S = 280


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The example, storing below the test's own folder."""
    project = tmp_path / "orders"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    spec = project / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/headrace-orders" in text
    spec.write_text(text.replace("file:///tmp/headrace-orders", (tmp_path / "storage").as_uri()))
    return project


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.slow("tests/spark/test_pipelines.py")
def test_a_declarative_pipeline_reads_a_stream_and_writes_one_exactly_once(
    project: Path, tmp_path: Path
) -> None:
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")
    server = peers.start_headrace(tmp_path / "broker")
    try:
        with sync.connect(server.url) as connection:
            js = connection.jetstream()
            js.create_stream(name="ORDERS", subjects=["orders"])
            js.create_stream(name="PAID", subjects=["paid.*", "_sink.PAID.>"], allow_atomic=True)
            for number in range(ORDERS):
                order = {"id": number, "paid": number % 2 == 0, "amount": number * 1.5}
                js.publish("orders", json.dumps(order).encode())
            ran = run(project, server.url)
            assert ran.returncode == 0, ran.stdout + ran.stderr
            paid = js.stream("PAID").info(subjects="paid.*").state.subjects
            assert paid == {f"paid.{number}": 1 for number in range(0, ORDERS, 2)}
            stored = js.stream("PAID").get_last_message("paid.4").payload
            assert json.loads(stored) == {"id": 4, "amount": 6.0}
    finally:
        server.stop()


def run(project: Path, url: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("spark-pipelines")
    # A catalog that remembers tables: with Spark's default one a second run fails.
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(project / "warehouse"),
    }
    flags = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    env = {
        "NATS_URL": url,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # Connect's local server takes any free port, not always the same
    }
    return subprocess.run(
        [program, "run", *flags],
        cwd=project,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
