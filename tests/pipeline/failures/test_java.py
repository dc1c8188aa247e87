"""What follows when Spark's Java is lost: the runner is begun anew, or its queries have failed. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.causes import SparkGoneError
from headrace.pipeline.failures.supervising import SAME_MAX, Again, JavaLost, Stop
from headrace.pipeline.model import DEFAULT_RESTARTS, NO_RESTARTS, Declared, RestartSettings

from ..conftest import ORDERS
from .test_supervising import Supervised, failing

GONE = SparkGoneError("no answer")


def test_what_was_lost_travels_as_a_text() -> None:
    lost = JavaLost((1_000_000.5, 1_000_060.25), 2)
    assert JavaLost.read(str(lost)) == lost
    for text in ("", "no number", "1 then", "-1"):
        assert JavaLost.read(text) == JavaLost(), text


@given(
    st.lists(st.tuples(st.floats(0, 500), st.booleans()), max_size=40),
    st.integers(0, 8),
    st.floats(1, 1_000),
)
@example([(1.59375, False), (0.0, False), (0.0, True)], 1, 1.0)
def test_java_is_never_started_more_often_than_the_settings_allow(
    events: list[tuple[float, bool]], attempts: int, within_s: float
) -> None:
    settings = RestartSettings(attempts=attempts, within_s=within_s)
    lost, now, starts, idle = JavaLost(), 1_000.0, [], 0
    for gap, has_worked in events:
        now += gap
        lost, follows = JavaLost.read(str(lost)).again(settings, now, has_worked=has_worked)
        if isinstance(follows, Stop):
            break
        starts.append(now)
        idle = 1 if has_worked else idle + 1
        assert idle < SAME_MAX
        assert sum(now - within_s < each for each in starts) <= attempts
        assert 1.0 <= follows.wait_s <= 60.0


def test_without_restarts_a_lost_java_is_a_failure_at_once() -> None:
    assert JavaLost().again(NO_RESTARTS, 0.0, has_worked=True)[1] == Stop()
    _, follows = JavaLost((), 2).again(DEFAULT_RESTARTS, 0.0, has_worked=False)
    assert isinstance(follows, Stop)
    assert "3 times without a finished batch" in follows.why
    assert isinstance(JavaLost((), 2).again(DEFAULT_RESTARTS, 0.0, has_worked=True)[1], Again)


def declared(write: Callable[..., Path]) -> Declared:
    more = '[sinks.other]\nfrom = "orders"\nformat = "noop"\n'
    return read(write(ORDERS + more))


def test_a_runner_without_java_tells_all_queries_and_asks_for_a_new_process(
    write: Callable[..., Path],
) -> None:
    world = Supervised(declared(write), DEFAULT_RESTARTS, math.inf)
    world.plans = {"out": failing(GONE, batches=1), "other": failing(GONE)}
    began = world.now
    ended = world.run()
    assert world.runner.needs_new_java
    assert world.runner.java_lost.idle == 1
    assert [(each.state, each.restarts) for each in ended.values()] == [("waiting", 1)] * 2
    assert [each[0] for each in world.told("restarting")] == ["out", "other"]
    assert world.now - began >= 2, "the failure, and the wait before a new one"
    assert not world.told("ended")
    assert {name: len(each) for name, each in world.queries.items()} == {"out": 1, "other": 1}


def test_a_stop_while_java_is_to_be_started_ends_the_run(write: Callable[..., Path]) -> None:
    world = Supervised(declared(write), DEFAULT_RESTARTS, math.inf)
    world.plans = {"out": failing(GONE, batches=1), "other": failing(GONE)}
    world.after(1.5, lambda: world.runner.stop("asked to end"))
    ended = world.run()
    assert not world.runner.needs_new_java
    assert [each.state for each in ended.values()] == ["stopped", "stopped"]


def test_a_java_that_is_lost_again_and_again_fails_every_query(write: Callable[..., Path]) -> None:
    world = Supervised(declared(write), NO_RESTARTS, math.inf)
    world.plans = {"out": failing(GONE), "other": failing(GONE)}
    ended = world.run()
    assert not world.runner.needs_new_java
    assert {each.state for each in ended.values()} == {"failed"}
    said = "Spark's Java has gone: it was killed, or has crashed; spark.log may say why"
    assert {str(each.problem).partition("failed: ")[2] for each in ended.values()} == {said}
