"""Retry schedules and time-outs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.jobs import limits
from headrace.jobs.errors import JobsError
from headrace.jobs.models import Options
from headrace.jobs.retry_policy import BreakerPolicy, RetryPolicy, retry_delay_s


def delays(policy: RetryPolicy, count: int, random: float = 0.0) -> list[float]:
    return [retry_delay_s(policy, retry, lambda: random) for retry in range(1, count + 1)]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ((5, 30, 60), [5, 30, 60, 120, 180]),
        ((10, 30, 60, 150), [10, 30, 60, 150, 300, 450, 600]),
        ((1,), [1, 2, 3, 4]),
        ((0,), [0, 0, 0]),
    ],
)
def test_the_schedule_goes_on_with_multiples_of_its_last_delay(
    listed: tuple[float, ...], expected: list[float]
) -> None:
    assert delays(RetryPolicy(kind="schedule", delays_s=listed), len(expected)) == expected


def test_exponential_delays_double_up_to_the_cap_and_jitter_only_shortens() -> None:
    policy = RetryPolicy(kind="exponential", base_s=1, cap_s=10, jitter=0.5)
    assert delays(policy, 6) == [1, 2, 4, 8, 10, 10]
    assert delays(policy, 6, random=0.5) == [0.75, 1.5, 3, 6, 7.5, 7.5]


def test_with_the_defaults_an_endpoint_may_be_down_for_a_day() -> None:
    options = Options()
    policy = options.default_settings().retry
    shortest, longest = (
        sum(delays(policy, options.max_retries, random)) / 3600 for random in (1.0, 0.0)
    )
    assert 28 < shortest < longest < 36
    assert sum(delays(policy, 5)) < 180, "a moment's failure is over soon"


def test_an_endpoint_may_ask_for_more_time_up_to_an_hour_but_not_for_less() -> None:
    policy = RetryPolicy(kind="schedule", delays_s=(60,))
    assert retry_delay_s(policy, 1, lambda: 0, 5) == 60
    assert retry_delay_s(policy, 1, lambda: 0, 90) == 90
    assert retry_delay_s(policy, 1, lambda: 0, 1e9) == limits.RETRY_AFTER_S_MAX


@given(
    st.lists(st.floats(0, limits.RETRY_DELAY_S_MAX), min_size=1, max_size=12),
    st.integers(1, 10_000),
)
def test_no_schedule_leaves_the_limits(listed: list[float], retry: int) -> None:
    policy = RetryPolicy(kind="schedule", delays_s=tuple(listed))
    policy.check()
    assert 0 <= retry_delay_s(policy, retry, lambda: 0.3) <= limits.RETRY_DELAY_S_MAX


@given(st.integers(1, 5000), st.floats(0, 0.999), st.floats(0, 1))
def test_exponential_delays_stay_between_the_jittered_base_and_the_cap(
    retry: int, random: float, jitter: float
) -> None:
    policy = RetryPolicy(kind="exponential", base_s=2, cap_s=500, jitter=jitter)
    delay = retry_delay_s(policy, retry, lambda: random)
    assert 2 * (1 - jitter) <= delay <= 500


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (RetryPolicy(delays_s=()), "retry.delays_s"),
        (RetryPolicy(delays_s=(-1,)), "retry.delays_s"),
        (RetryPolicy(delays_s=(float("nan"),)), "retry.delays_s"),
        (RetryPolicy(base_s=0), "retry.base_s"),
        (RetryPolicy(base_s=9, cap_s=8), "retry.cap_s"),
        (RetryPolicy(jitter=1.1), "retry.jitter"),
        (BreakerPolicy(failures=0), "breaker.failures"),
        (BreakerPolicy(open_s=0), "breaker.open_s"),
        (BreakerPolicy(disable_after_s=0), "breaker.disable_after_s"),
    ],
)
def test_a_policy_that_cannot_be_followed_names_its_field(
    policy: RetryPolicy | BreakerPolicy, field: str
) -> None:
    with pytest.raises(JobsError) as refused:
        policy.check()
    assert (refused.value.status, refused.value.field) == (400, field)
