from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.batches.lag import document, prometheus
from headrace.spark.lost_messages import Loss, merged, read_losses, tell
from headrace.spark.options.source import Use

from .conftest import Feed
from .queries import driver


def test_a_loss_is_a_line_in_the_log_and_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "losses.jsonl"
    losses = [Loss("S", 51, 700, 650), Loss("S", 0, 5, 0), Loss("S", 8, 0, 0)]
    for each in losses:
        tell(each, str(file))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert "up to 650 messages of stream 'S', sequences 51 to 700, were removed" in caplog.text
    assert "up to sequence 5, were removed before they were read" in caplog.text
    assert "had not read after sequence 7 of the one before is lost" in caplog.text
    found, end = read_losses(file)
    assert found == losses
    with file.open("a") as opened:
        opened.write('{"stream": "S", "fir')
    assert read_losses(file, end) == ([], end), "a line that is not whole is read when it is"
    assert read_losses(tmp_path / "none") == ([], 0)


def test_a_file_that_cannot_be_written_stops_no_query(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tell(Loss("S", 1, 2, 2), str(tmp_path / "no" / "folder"))
    assert "the loss is not noted in" in caplog.text


RANGES = st.lists(
    st.tuples(st.sampled_from("AB"), st.integers(1, 30), st.integers(0, 9)), max_size=12
)


@given(ranges=RANGES)
def test_ranges_that_were_found_missing_twice_count_once(
    ranges: list[tuple[str, int, int]],
) -> None:
    losses = [Loss(stream, first, first + more, more + 1) for stream, first, more in ranges]
    found = merged([*losses, *losses])
    missing = {(loss.stream, seq) for loss in losses for seq in range(loss.first, loss.last + 1)}
    covered = [(loss.stream, seq) for loss in found for seq in range(loss.first, loss.last + 1)]
    assert sorted(covered) == sorted(missing)
    assert all(loss.messages <= loss.last - loss.first + 1 for loss in found)


def test_a_query_that_may_go_on_says_what_is_lost_once_and_counts_it(
    feed: Feed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed.publish_numbers(1, 10)
    file = tmp_path / "losses.jsonl"
    use = Use("orders", (), "p/out", "r", str(file)).text
    lax = driver(feed, failOnDataLoss="false", pipeline=use)
    start = lax.initial_offset()
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": 5})
    end = start._replace(seq=10)
    for _ in range(2):
        assert [tuple(piece)[:2] for piece in lax.plan(start, end)] == [(4, 10)]
    loss = Loss(feed.name, 1, 4, 4)
    assert read_losses(file)[0] == [loss]
    assert caplog.text.count(str(loss)) == 1
    lags = [lax.lag(lax.look(end))]
    assert (
        f'headrace_spark_messages_lost_total{{stream="{feed.name}",durable="d"}} 4'
        in prometheus("d", lags)
    )
    assert b'"messages_lost": 4' in document("d", lags, 0)
    lax.close()
    again = driver(feed, failOnDataLoss="false", pipeline=use)
    feed.call(f"STREAM.PURGE.{feed.name}", {})
    assert again.plan(start, start._replace(seq=3)) == []
    assert merged(read_losses(file)[0]) == [loss], "as much of it as the batch has"
    again.close()
