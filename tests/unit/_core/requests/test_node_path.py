"""What the way to a node carries: rate, base and window from scripted answers."""

from __future__ import annotations

from kafkaprod._core.requests.node_path import NodePath

KB = 1000
SECOND = 1000


def exchange(path: NodePath, size: int, start_ms: int, took_ms: int, *, waits: bool = False) -> int:
    """One request alone on its way; return when it was answered."""
    flight = path.on_sent(size, start_ms)
    if waits:
        path.on_waiting()
    path.on_answer(flight, start_ms + took_ms)
    return start_ms + took_ms


def saturate(path: NodePath, now_ms: int, end_ms: int, *, rate: int, rtt_ms: int, size: int = 256 * KB) -> int:
    """Keep as much in flight as the path allows, over a link of `rate` bytes a millisecond; return the end."""
    flights: list[tuple[int, object]] = []  # arrival of the answer, flight
    free_ms = now_ms
    while now_ms < end_ms:
        while path.may_send() and len(flights) < 5:
            sent = min(size, path.room_bytes())
            free_ms = max(free_ms, now_ms) + max(sent // rate, 1)
            flights.append((free_ms + rtt_ms, path.on_sent(sent, now_ms)))
        path.on_waiting()
        now_ms, flight = flights.pop(0)
        path.on_answer(flight, now_ms)  # type: ignore[arg-type]
    for arrival_ms, flight in flights:
        path.on_answer(flight, arrival_ms)  # type: ignore[arg-type]
        now_ms = arrival_ms
    return now_ms


def test_first_answer_makes_the_window_a_second_of_its_rate() -> None:
    path = NodePath(first_bytes=256 * KB)
    assert path.window_bytes == 256 * KB
    exchange(path, 100 * KB, 0, 50)
    assert (path.rate, path.base_ms) == (2 * KB, 50)
    assert path.window_bytes == 2000 * KB


def test_far_window_is_two_answer_times() -> None:
    path = NodePath()
    exchange(path, 1000 * KB, 0, 1000)
    assert path.window_bytes == 2000 * KB


def test_no_more_than_a_quarter_of_the_request_timeout_is_in_flight() -> None:
    path = NodePath(request_timeout_ms=4000)
    exchange(path, 9000 * KB, 0, 9000)
    assert path.window_bytes == 1000 * KB


def test_answers_of_one_read_tell_no_more_than_their_span_delivered() -> None:
    path = NodePath()
    flights = [path.on_sent(100 * KB, 0) for _ in range(5)]
    for flight in flights:
        path.on_answer(flight, 50)
    assert path.rate == 500 * KB / 50


def test_small_samples_without_a_queue_do_not_lower_the_rate() -> None:
    path = NodePath()
    now_ms = exchange(path, 1000 * KB, 0, 50, waits=True)
    for _ in range(1000):
        now_ms = exchange(path, 100, now_ms + 100, 50)
    assert path.rate == 20 * KB


def test_saturated_path_keeps_base_and_window() -> None:
    path, later = NodePath(), NodePath()
    saturate(path, 0, 10 * SECOND, rate=1250, rtt_ms=50)
    saturate(later, 0, 70 * SECOND, rate=1250, rtt_ms=50)
    assert path.base_ms == later.base_ms
    assert 0.9 * path.window_bytes <= later.window_bytes <= 1.1 * path.window_bytes
    assert later.is_known


def test_requests_that_fill_their_room_one_by_one_do_not_widen_it() -> None:
    path = NodePath()
    now_ms = exchange(path, 100 * KB, 0, 850)  # 125 bytes a millisecond, after 50 ms
    for _ in range(100):
        size = path.room_bytes()
        now_ms = exchange(path, size, now_ms, 50 + size // 125, waits=True)
    assert path.base_ms <= 600


def test_window_follows_a_link_that_becomes_a_hundred_times_slower_in_ten_seconds() -> None:
    path = NodePath()
    now_ms = saturate(path, 0, 10 * SECOND, rate=12_500, rtt_ms=5)
    assert path.window_bytes > 10_000 * KB
    now_ms = saturate(path, now_ms, now_ms + 1, rate=125, rtt_ms=5)  # what the old window holds goes slowly
    saturate(path, now_ms, now_ms + 11 * SECOND, rate=125, rtt_ms=5)
    assert path.window_bytes < 1000 * KB


def test_window_follows_a_link_that_becomes_a_hundred_times_faster_in_a_round_trip() -> None:
    path = NodePath()
    now_ms = saturate(path, 0, 10 * SECOND, rate=125, rtt_ms=5)
    assert path.window_bytes < 1000 * KB
    exchange(path, 256 * KB, now_ms, 25, waits=True)
    assert path.window_bytes > 10_000 * KB


def test_new_connection_begins_with_the_first_window_until_it_answers() -> None:
    path = NodePath(first_bytes=256 * KB)
    exchange(path, 1000 * KB, 0, 50)
    path.on_lost(path.on_sent(1000, 100))
    assert (path.window_bytes, path.in_flight_bytes, path.in_flight_count) == (256 * KB, 0, 0)
    exchange(path, 1000, 200, 50)
    assert path.window_bytes == 20_000 * KB


def test_one_request_goes_whatever_its_size_and_the_next_waits() -> None:
    path = NodePath(first_bytes=64 * KB)
    assert path.may_send()
    flight = path.on_sent(10_000 * KB, 0)
    assert not path.may_send()
    path.on_answer(flight, 100_000)
    assert path.may_send()


def test_throttled_time_makes_no_sample_older() -> None:
    path = NodePath()
    now_ms = exchange(path, 1000 * KB, 0, 50, waits=True)
    path.on_throttle(20 * SECOND)
    exchange(path, 10 * KB, now_ms + 20 * SECOND, 50, waits=True)
    assert path.rate == 20 * KB


def test_loaded_answers_do_not_raise_the_base() -> None:
    path = NodePath()
    exchange(path, 100 * KB, 0, 50)
    first, second = path.on_sent(100 * KB, 20 * SECOND), path.on_sent(50 * KB, 20 * SECOND)
    path.on_answer(second, 25 * SECOND)
    assert path.base_ms == 50
    path.on_answer(first, 20 * SECOND + 60)  # nothing was before it
    assert path.base_ms == 60


def test_near_requests_have_the_usual_room_and_far_ones_half_of_what_the_path_holds() -> None:
    near, far, thin, bounded = NodePath(), NodePath(), NodePath(), NodePath(usual_room=500 * KB, is_bounded=True)
    exchange(near, 1000 * KB, 0, 1)
    assert near.room_bytes() == 2 << 20
    exchange(far, 10_000 * KB, 0, 250)
    assert far.room_bytes() == 5000 * KB
    exchange(thin, 125 * KB, 0, 1000)
    assert thin.room_bytes() == 62_500
    exchange(bounded, 10_000 * KB, 0, 250)
    assert bounded.room_bytes() == 500 * KB


def test_batches_are_kept_small_on_a_narrow_path_once_it_is_known() -> None:
    narrow, wide = NodePath(), NodePath()
    saturate(narrow, 0, 60 * SECOND, rate=125, rtt_ms=50)
    assert 0 < narrow.most_batch_bytes() <= 128 << 10
    saturate(wide, 0, 10 * SECOND, rate=125_000, rtt_ms=1)
    assert wide.is_known
    assert wide.most_batch_bytes() == 0


def test_batches_are_kept_small_until_there_was_an_answer() -> None:
    path = NodePath(first_bytes=256 << 10)
    assert path.most_batch_bytes() == 256 << 10
    exchange(path, 100 * KB, 0, 50)
    assert path.most_batch_bytes() == 0


def test_a_lost_connection_does_not_change_how_far_batches_grow() -> None:
    new, narrow = NodePath(first_bytes=256 << 10), NodePath()
    new.on_lost(new.on_sent(1000, 0))
    assert new.most_batch_bytes() == 256 << 10
    now_ms = saturate(narrow, 0, 60 * SECOND, rate=125, rtt_ms=50)
    before = narrow.most_batch_bytes()
    narrow.on_lost(narrow.on_sent(1000, now_ms))
    assert narrow.most_batch_bytes() == before


def test_third_request_keeps_a_fifth_of_the_answer_time_from_the_second() -> None:
    path = NodePath()
    exchange(path, 1000, 0, 250)
    assert path.wait_ms(1000) == 0
    path.on_sent(1000, 1000)
    assert path.wait_ms(1000) == 0
    path.on_sent(1000, 1000)
    assert (path.wait_ms(1000), path.wait_ms(1049), path.wait_ms(1050)) == (50, 1, 0)


def test_near_nothing_waits() -> None:
    path = NodePath()
    exchange(path, 1000, 0, 4)
    for _ in range(4):
        path.on_sent(1000, 1000)
    assert path.wait_ms(1000) == 0
