"""What the job service puts aside, Spark reads as it lies there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.jobs.archive import Archive
from headrace.jobs.service.retention import Window
from headrace.jobs.states import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_US = 24 * 3600 * 1_000_000
NEW_YEAR_US = 1_767_225_600_000_000  # 2026-01-01


def message(seq: int, received_us: int, payload: bytes) -> dict[str, Any]:
    return {
        "seq": seq,
        "channel_id": "orders",
        "message_id": f"m{seq}",
        "producer_id": "p",
        "received_us": received_us,
        "dispatched_us": received_us + 1,
        "scheduled_us": None,
        "priority": 0,
        "ordering_key": None,
        "content_type": "application/json",
        "headers": '{"X-Trace": "t"}',
        "payload": payload,
    }


def job(seq: int, consumer: str, state: State, changed_us: int) -> dict[str, Any]:
    return {
        "seq": seq,
        "consumer_id": consumer,
        "state": state,
        "retries": 1,
        "claims": 2,
        "changed_us": changed_us,
        "last_error": "",
    }


@pytest.mark.spark
def test_the_archive_is_a_table_by_day_without_its_manifests(
    spark: SparkSession, tmp_path: Path
) -> None:
    messages: list[Any] = [
        message(n, NEW_YEAR_US + n % 2 * DAY_US, b'{"n": %d}' % n) for n in range(1, 101)
    ]
    jobs: dict[int, list[Any]] = {
        each["seq"]: [
            job(2 * each["seq"], "mill", State.DELIVERED, each["received_us"] + 2),
            job(2 * each["seq"] + 1, "press", State.DEAD, each["received_us"] + 3),
        ]
        for each in messages
    }
    Archive(tmp_path, "n1").write(Window(messages[:60], jobs, 60))
    Archive(tmp_path, "n2").write(Window(messages[60:], jobs, None))

    table = spark.read.json(str(tmp_path))
    assert table.count() == 100
    days = {str(row["date"]): row["count"] for row in table.groupBy("date").count().collect()}
    assert days == {"2026-01-01": 50, "2026-01-02": 50}
    ends = table.selectExpr("explode(jobs) AS job").groupBy("job.consumer", "job.state").count()
    assert {tuple(row) for row in ends.collect()} == {
        ("mill", "DELIVERED", 100),
        ("press", "DEAD", 100),
    }
    jobs_by_id = table.selectExpr("explode(jobs) AS job").select("job.job").distinct()
    assert jobs_by_id.count() == 200
    total = table.selectExpr("sum(get_json_object(payload, '$.n')) AS total").first()
    assert total is not None
    assert int(total["total"]) == sum(range(1, 101))
