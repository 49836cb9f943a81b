"""The records of topics whose metadata is not known yet: few threads learn many topics."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from kafkaprod.compat.confluent_kafka import backlog
from kafkaprod.compat.confluent_kafka.backlog import MOST_THREADS, Backlog

TOPICS = 300
BOUND_S = 30


def test_many_unknown_topics_have_few_threads_and_all_their_records_are_sent() -> None:
    may_learn, is_over = threading.Event(), threading.Event()
    most = 0
    sent: list[str] = []

    def learn(topic: str) -> None:
        assert may_learn.wait(BOUND_S)

    def job(name: str, error: BaseException | None) -> None:
        assert error is None
        sent.append(name)
        if len(sent) == 2 * TOPICS:
            is_over.set()

    waiting = Backlog(learn)
    for number in range(TOPICS):
        for record in "ab":
            name = f"{number}{record}"
            assert waiting.keep(f"t{number}", partial(job, name))
        most = max(most, sum(thread.name == "kafkaprod-metadata" for thread in threading.enumerate()))
    assert most <= MOST_THREADS
    may_learn.set()
    assert is_over.wait(BOUND_S)
    assert all(sent.index(f"{number}a") < sent.index(f"{number}b") for number in range(TOPICS))
    assert not waiting.keep("t0", lambda _: None)


def test_topic_for_which_no_thread_can_start_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(backlog, "make_thread", lambda *_: Refusing())
    errors: list[BaseException | None] = []
    waiting = Backlog(lambda _: None)
    assert waiting.keep("t", errors.append)
    assert "can't start new thread" in str(errors[0])
    assert not waiting
