from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from headrace.api.consumers import ConsumerInfo
from headrace.api.roles import TOLD, shows_progress
from headrace.errors import ConfigurationError
from headrace.spark.batches.progress import TOLD_EVERY_S, Progress
from headrace.spark.offsets import Offset
from headrace.spark.options.source import Use

from ..conftest import Feed
from ..queries import driver, latest_offset, shown


def test_latest_is_remembered_by_the_durable_across_processes(feed: Feed) -> None:
    feed.publish_numbers(1, 5)
    first = driver(feed, startingOffsets="latest", durable="d")
    assert first.initial_offset().seq == 5
    first.close()
    feed.publish_numbers(6, 9)
    second = driver(feed, startingOffsets="latest", durable="d")
    assert second.initial_offset().seq == 5
    second.close()


def test_progress_is_shown_when_the_next_offset_is_asked_for(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    one = driver(feed, durable="d")
    epoch = one.initial_offset().epoch
    assert shown(feed, "d") == (0, 100)
    assert latest_offset(one, Offset(0, epoch), 40).seq == 40
    assert shown(feed, "d") == (0, 100)
    assert latest_offset(one, Offset(40, epoch), None).seq == 100
    assert shown(feed, "d") == (40, 60)
    assert latest_offset(one, Offset(100, epoch), None).seq == 100
    assert shown(feed, "d") == (100, 0)
    info = feed.control.consumer_info("d")
    assert info is not None
    assert shows_progress(info.config.metadata), "nobody asks it for messages, and no alert is due"
    one.close()


def test_a_durable_that_is_older_is_moved_to_where_the_query_is(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    first = driver(feed, durable="d")
    start = first.initial_offset()
    latest_offset(first, start._replace(seq=40), None)
    first.close()
    later = driver(feed, durable="d")  # its checkpoint has what the durable never heard of
    assert latest_offset(later, start._replace(seq=70), None).seq == 100
    assert shown(feed, "d") == (70, 30)
    later.close()


def test_a_query_begun_anew_takes_its_durable_back_to_the_start(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    first = driver(feed, durable="d", startingOffsets="50")
    start = first.initial_offset()
    latest_offset(first, Offset(80, start.epoch), None)
    assert shown(feed, "d") == (80, 20)
    first.close()
    anew = driver(feed, durable="d", startingOffsets="11")
    assert anew.initial_offset().seq == 10
    assert shown(feed, "d") == (10, 90)
    anew.close()


def test_the_uses_of_a_source_in_one_query_of_a_pipeline_share_its_durable(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    use = Use("orders", (), "p/out", "run", "").text
    uses = [driver(feed, durable="d", pipeline=use) for _ in range(2)]
    starts = [each.initial_offset() for each in uses]
    for at in (40, 100):
        for one, start in zip(uses, starts, strict=True):
            latest_offset(one, Offset(at, start.epoch), None)
        assert shown(feed, "d") == (at, 100 - at)
    later = driver(feed, durable="d", pipeline=Use("orders", (), "p/out", "next run").text)
    later.initial_offset()
    with pytest.raises(ConfigurationError, match="another query has started with durable"):
        latest_offset(uses[0], Offset(70, starts[0].epoch), None)
    for each in (*uses, later):
        each.close()


def test_progress_is_made_up_for_by_recreating_where_a_server_cannot_reset(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    one = driver(feed, durable="d")
    epoch = one.initial_offset().epoch
    assert one._call._control is not None
    one._call._control._resets = False
    latest_offset(one, Offset(70, epoch), None)
    assert shown(feed, "d") == (70, 30)
    one.close()


def test_somebody_else_s_durable_is_not_touched(feed: Feed) -> None:
    feed.publish_numbers(1, 3)
    config = {"durable_name": "theirs", "ack_policy": "explicit"}
    feed.call(f"CONSUMER.CREATE.{feed.name}.theirs", {"stream_name": feed.name, "config": config})
    one = driver(feed, durable="theirs")
    with pytest.raises(ConfigurationError, match="was not made by a Spark query"):
        one.initial_offset()
    one.close()


def test_a_durable_has_one_owner_and_the_query_that_lost_it_is_told(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    first, second = driver(feed, durable="d"), driver(feed, durable="d")
    start = first.initial_offset()
    latest_offset(first, start._replace(seq=40), None)
    assert shown(feed, "d") == (40, 60)
    latest_offset(second, start._replace(seq=70), None)
    with pytest.raises(ConfigurationError, match="another query has started with durable 'd'"):
        latest_offset(first, start._replace(seq=90), None)
    assert shown(feed, "d") == (70, 30)
    latest_offset(second, start._replace(seq=80), None)
    assert shown(feed, "d") == (80, 20)
    first.close()
    second.close()


def test_a_former_owner_that_wakes_up_in_a_call_does_not_end_the_query_that_has_taken_over(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen behind its look at the consumer, and notes itself there once more when it wakes up."""
    feed.publish_numbers(1, 100)
    use = Use("orders", (), "p/out", "first run").text
    former = driver(feed, durable="d", pipeline=use)
    start = former.initial_offset()
    latest_offset(former, start._replace(seq=40), None)
    latter = driver(feed, durable="d", pipeline=Use("orders", (), "p/out", "second run").text)
    control = former._call._control
    assert control is not None
    look = control.consumer_info

    def look_and_freeze(name: str) -> ConsumerInfo | None:
        seen = look(name)
        monkeypatch.undo()
        latest_offset(latter, start._replace(seq=60), None)
        return seen

    monkeypatch.setattr(control, "consumer_info", look_and_freeze)
    monkeypatch.setattr(former._progress, "_told", 0.0)  # it is time to note itself
    latest_offset(former, start._replace(seq=50), None)
    assert shown(feed, "d") == (50, 50)
    assert latest_offset(latter, start._replace(seq=80), None).seq == 100
    assert shown(feed, "d") == (80, 20)
    with pytest.raises(ConfigurationError, match="another query has started with durable 'd'"):
        latest_offset(former, start._replace(seq=90), None)
    latest_offset(latter, start._replace(seq=90), None)
    for each in (former, latter):
        each.close()


@pytest.mark.parametrize("noted", ["", "yesterday", "²", "-5", "9" * 30])
def test_a_durable_that_does_not_say_when_its_owner_started_is_taken(
    feed: Feed, noted: str
) -> None:
    """An older version made it, or somebody has changed it."""
    feed.publish_numbers(1, 100)
    first = driver(feed, durable="d")
    start = first.initial_offset()
    info = feed.control.consumer_info("d")
    assert info is not None
    metadata = {**info.config.metadata, "headrace.owner": "other", "headrace.started": noted}
    feed.control.create_consumer(structs.replace(info.config, metadata=metadata), action="update")
    latest_offset(first, start._replace(seq=40), None)
    assert shown(feed, "d") == (40, 60)
    first.close()


def test_a_clock_that_runs_behind_does_not_make_the_query_that_starts_now_the_older_one(
    feed: Feed,
) -> None:
    feed.publish_numbers(1, 10)
    config = feed.control.stream_info().config
    first = Progress("d", clock=lambda: 2_000_000_000.0)
    second = Progress("d", clock=lambda: 1_000_000_000.0)
    first.start(feed.control, config, 0)
    second.start(feed.control, config, 0)
    second.show(feed.control, 5)
    with pytest.raises(ConfigurationError, match="another query has started"):
        first.show(feed.control, 7)
    assert shown(feed, "d") == (5, 5)


def test_a_durable_counts_the_subjects_that_are_read_now(feed: Feed) -> None:
    feed.publish([f"k{n % 10}" for n in range(100)])
    first = driver(feed, durable="d", subjects=f"{feed.name}.k1")
    start = first.initial_offset()
    latest_offset(first, start._replace(seq=50), None)
    assert shown(feed, "d") == (50, 5)
    first.close()
    for subjects, pending in ((f"{feed.name}.k1,{feed.name}.k2", 10), (">", 50)):
        again = driver(feed, durable="d", subjects=subjects)
        latest_offset(again, start._replace(seq=50), None)
        assert shown(feed, "d") == (50, pending)
        again.close()


def test_a_durable_deleted_under_a_query_is_made_again_at_once(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    feed.publish_numbers(1, 100)
    one = driver(feed, durable="d", requestTimeout="60s")  # longer than a test may take
    start = one.initial_offset()
    feed.control.delete_consumer("d")
    latest_offset(one, start._replace(seq=40), None)
    assert shown(feed, "d") == (40, 60)
    assert "consumer 'd' of stream" in caplog.text
    one.close()


def test_a_durable_is_refused_where_it_would_decide_what_is_kept(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(retention="workqueue")
    one = driver(feed, durable="d")
    with pytest.raises(ConfigurationError, match="retention limits"):
        one.initial_offset()
    one.close()


def test_the_time_at_which_progress_was_told_is_noted_now_and_then(feed: Feed) -> None:
    """Nothing else of a consumer that nobody pulls from says whether its reader lives."""
    feed.publish_numbers(1, 10)
    now = 1_000_000_000.0
    config = feed.control.stream_info().config
    progress = Progress("d", clock=lambda: now)

    def told() -> str:
        info = feed.control.consumer_info("d")
        assert info is not None
        return info.config.metadata[TOLD]

    progress.start(feed.control, config, 0)
    assert told() == "2001-09-09T01:46:40Z"
    now += TOLD_EVERY_S - 1
    progress.show(feed.control, 3)
    assert told() == "2001-09-09T01:46:40Z"
    now += 1
    progress.show(feed.control, 3)  # nothing new: nothing to tell
    assert told() == "2001-09-09T01:46:40Z"
    progress.show(feed.control, 5)
    assert told() == "2001-09-09T01:46:50Z"
    assert shown(feed, "d") == (5, 5)
