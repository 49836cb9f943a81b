from __future__ import annotations

import threading

import pytest

from kafkaprod.errors import AuthenticationError, ConnectionLostError, KafkaError
from kafkaprod.security.oauthbearer import BearerToken
from kafkaprod.security.token_cache import TokenCache


class Provider:
    def __init__(self, lifetime_s: float | None = 100.0) -> None:
        self.now_s = 1000.0
        self.count = 0
        self.lifetime_s = lifetime_s
        self.error: KafkaError | None = None
        self.cache = TokenCache(self.fetch, lambda: self.now_s)

    def fetch(self) -> BearerToken:
        self.count += 1
        if self.error is not None:
            raise self.error
        return BearerToken(f"t{self.count}", {}, self.lifetime_s)


def test_a_token_is_kept_for_eighty_percent_of_its_life() -> None:
    provider = Provider()
    assert provider.cache.token().value == "t1"
    provider.now_s += 79.5
    assert provider.cache.token().value == "t1"
    provider.now_s += 0.5
    assert provider.cache.token().value == "t2"
    assert provider.count == 2


def test_a_token_of_unknown_life_is_used_once() -> None:
    provider = Provider(None)
    assert [provider.cache.token().value for _ in range(2)] == ["t1", "t2"]


@pytest.mark.parametrize("error", [ConnectionLostError("down"), AuthenticationError("no")])
def test_the_old_token_is_used_to_its_end_while_no_other_can_be_fetched(
    error: KafkaError, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    provider.cache.token()
    provider.error = error
    provider.now_s += 99.5
    assert provider.cache.token().value == "t1"
    assert "the old one is used" in caplog.text
    provider.now_s += 0.5
    with pytest.raises(type(error)):
        provider.cache.token()
    provider.error = None
    assert provider.cache.token().value == "t4"


def test_a_refused_token_is_fetched_again() -> None:
    provider = Provider()
    token = provider.cache.token()
    provider.cache.discard(BearerToken("another"))
    assert provider.cache.token() is token
    provider.cache.discard(token)
    assert provider.cache.token().value == "t2"


def test_many_threads_fetch_one_token() -> None:
    started, go = threading.Barrier(9), threading.Event()
    count = 0

    def fetch() -> BearerToken:
        nonlocal count
        go.wait(10)
        count += 1
        return BearerToken("x", {}, 100.0)

    cache = TokenCache(fetch)

    def take() -> None:
        started.wait(10)
        cache.token()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    started.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert count == 1


def test_fetch_that_hangs_delays_no_login_that_has_a_token_and_no_other_for_ever() -> None:
    started, may_end = threading.Event(), threading.Event()
    now_s, tokens = 1000.0, iter([BearerToken("old", {}, 100.0), BearerToken("new", {}, 100.0)])

    def fetch() -> BearerToken:
        if now_s > 1000.0:
            started.set()
            may_end.wait(10)
        return next(tokens)

    cache = TokenCache(fetch, lambda: now_s, patience_s=0.01)
    assert cache.token().value == "old"
    now_s += 90
    thread = threading.Thread(target=cache.token)
    thread.start()
    assert started.wait(10)
    assert cache.token().value == "old"  # it lives for 10 s more
    cache.discard(BearerToken("another"))
    now_s += 20
    with pytest.raises(ConnectionLostError, match=r"has not ended within 0\.01 s"):
        cache.token()
    may_end.set()
    thread.join(10)
    assert cache.token().value == "new"


def test_failure_of_a_fetch_is_that_of_all_who_wait_for_it() -> None:
    waiting, may_end = threading.Event(), threading.Event()

    def fetch() -> BearerToken:
        waiting.set()
        may_end.wait(10)
        raise ConnectionLostError("down")

    cache = TokenCache(fetch)
    errors: list[str] = []

    def take() -> None:
        try:
            cache.token()
        except ConnectionLostError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert waiting.wait(10)
    may_end.set()
    for thread in threads:
        thread.join(10)
    assert errors == ["down"] * 4


def test_error_that_is_no_errors_of_ours_leaves_the_cache_usable() -> None:
    calls = iter([ZeroDivisionError(), None])

    def fetch() -> BearerToken:
        error = next(calls)
        if error is not None:
            raise error
        return BearerToken("t", {}, 100.0)

    cache = TokenCache(fetch)
    with pytest.raises(ZeroDivisionError):
        cache.token()
    assert cache.token().value == "t"


@pytest.mark.parametrize("renewals", [1, 2, 3])
def test_each_token_is_used_to_its_own_end(renewals: int) -> None:
    provider = Provider()
    provider.cache.token()
    for number in range(renewals):
        provider.now_s += 80
        assert provider.cache.token().value == f"t{number + 2}"
    provider.error = ConnectionLostError("down")
    provider.now_s += 99.5
    assert provider.cache.token().value == f"t{renewals + 1}"
    provider.now_s += 0.5
    with pytest.raises(ConnectionLostError):
        provider.cache.token()


@pytest.mark.parametrize("lives_s", [(100.0, 10.0), (10.0, 100.0), (100.0, None), (None, 100.0)])
def test_tokens_of_different_lives_have_each_its_own(lives_s: tuple[float | None, float | None]) -> None:
    provider = Provider(lives_s[0])
    provider.cache.token()
    provider.now_s += 200
    provider.lifetime_s = lives_s[1]
    assert provider.cache.token().value == "t2"
    provider.now_s += 8.5
    assert provider.cache.token().value == ("t2" if lives_s[1] == 100.0 else "t3")
