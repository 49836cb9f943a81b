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
