from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.locks.tenure import Tenure

SECONDS = st.floats(0, 100, allow_nan=False)


@given(st.integers(2, 60), st.lists(st.tuples(SECONDS, SECONDS, st.booleans()), max_size=20))
def test_it_is_over_for_us_before_it_is_for_the_server(
    ttl: int, steps: list[tuple[float, float, bool]]
) -> None:
    """Each step: a pause, the time of a renewal on its way, and whether its answer came."""
    now, frees_at, revision = 0.0, float(ttl), 1
    tenure = Tenure(ttl, 0.0, revision)
    for pause, way, is_answered in steps:
        now += pause
        sent, arrives = now, now + way
        if arrives < frees_at:  # the server has it still
            frees_at = arrives + ttl
            revision += 1
            if is_answered:
                tenure.renewed(sent, revision)
        now = arrives
        assert tenure.until < frees_at
        assert tenure.token == 1


@given(st.integers(2, 60), SECONDS)
def test_it_is_renewed_in_time_and_never_in_the_past(ttl: int, now: float) -> None:
    tenure = Tenure(ttl, 0.0, 1)
    wait = tenure.next_renewal(now)
    assert 0 <= wait <= ttl / 3
    assert now + wait < tenure.until or not tenure.holds(now)
