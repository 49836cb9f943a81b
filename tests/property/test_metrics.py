import bisect

from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.metrics import LatencyHistogram
from kafkaprod.metrics.histogram import BUCKET_COUNT, MAX_VALUE, bucket_of, highest_of
from kafkaprod.metrics.prometheus import BOUNDS_US
from kafkaprod.metrics.sums import TopicSample
from kafkaprod.metrics.windows import SampleRing

VALUES = st.one_of(st.integers(0, 200), st.integers(0, MAX_VALUE))


@given(VALUES)
def test_bucket_holds_its_values_and_is_narrow(value: int) -> None:
    bucket = bucket_of(value)
    assert 0 <= bucket < BUCKET_COUNT
    lowest = highest_of(bucket - 1) + 1 if bucket else 0
    assert lowest <= value <= highest_of(bucket)
    assert highest_of(bucket) - lowest <= lowest / 32


def test_buckets_leave_no_gap_and_end_at_the_maximum() -> None:
    ends = [highest_of(bucket) for bucket in range(BUCKET_COUNT)]
    assert ends == sorted(set(ends))
    assert ends[-1] == MAX_VALUE
    assert bucket_of(MAX_VALUE) == BUCKET_COUNT - 1


@given(st.lists(VALUES, min_size=1), st.floats(0, 1))
def test_percentile_is_never_below_and_at_most_one_bucket_above_the_true_one(values: list[int], share: float) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    true = sorted(values)[max(1, round(share * len(values))) - 1]
    [found] = histogram.percentiles([share])
    assert true <= found <= true + true / 32
    assert histogram.total == sum(values)


@given(st.lists(st.integers(-5, 2 * MAX_VALUE)))
def test_values_out_of_range_are_counted_at_the_ends(values: list[int]) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    assert histogram.count == len(values)
    assert 0 <= histogram.highest <= MAX_VALUE


@given(st.lists(VALUES))
def test_cumulative_counts_at_the_bounds_are_exact(values: list[int]) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    expected = [bisect.bisect_right(sorted(values), bound) for bound in BOUNDS_US]
    assert histogram.counts_up_to(BOUNDS_US) == expected


@given(
    st.integers(1, 4),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=30),
    st.integers(0, 300),
)
def test_total_keeps_everything_and_recent_only_live_windows(
    sample_count: int, window_ms: int, steps: list[tuple[int, int]], later_ms: int
) -> None:
    ring = SampleRing(TopicSample, sample_count, window_ms)
    now_ms = 0
    starts: list[tuple[int, int]] = []  # the model: (start of window, value)
    for wait_ms, value in steps:
        now_ms += wait_ms
        ring.current(now_ms).records += value
        start_ms = starts[-1][0] if starts and now_ms < starts[-1][0] + window_ms else now_ms
        starts.append((start_ms, value))
    now_ms += later_ms
    assert ring.total().records == sum(value for _, value in starts)
    kept = sorted({start for start, _ in starts})[-sample_count:]
    live = [start for start in kept if start > now_ms - sample_count * window_ms]
    recent, seconds = ring.recent(now_ms)
    assert recent.records == sum(value for start, value in starts if start in live)
    covered_ms = max(now_ms - min(live, default=now_ms), (sample_count - 1) * window_ms, 1)
    assert seconds == covered_ms / 1000
