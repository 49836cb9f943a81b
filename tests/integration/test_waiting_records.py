"""The metrics that alerts begin with: how many records wait, since when, and when the last was acknowledged."""

from __future__ import annotations

import time

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker

WAITING = 5
BOUND_S = 30


def test_waiting_records_show_while_the_broker_is_down_and_are_gone_after_it() -> None:
    with (
        EmbeddedBroker(topics={"t": 2}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, reconnect_backoff_max_ms=100) as producer,
    ):

        def now() -> tuple[float, float, float]:
            values = producer.metrics()["producer-metrics"]
            return values["records-waiting"], values["oldest-record-age"], values["last-acknowledged-time"]

        assert now() == (0, 0, 0)
        before_s = time.time()
        producer.send("t", b"x").result(BOUND_S)
        waiting, age_s, acknowledged_s = now()
        assert (waiting, age_s) == (0, 0)
        assert before_s - 1 < acknowledged_s < time.time() + 1
        broker.stop()
        futures = [producer.send("t", b"x", partition=number % 2) for number in range(WAITING)]
        deadline_s = time.monotonic() + BOUND_S
        while now()[1] < 0.05:
            assert time.monotonic() < deadline_s
        assert now()[0] == WAITING
        # The clocks may differ by a ms, and more if this thread is held up between its looks at them.
        assert min(abs(now()[2] - acknowledged_s) for _ in range(50)) < 0.1
        broker.start()
        for future in futures:
            future.result(BOUND_S)
        waiting, age_s, later_s = now()
        assert (waiting, age_s) == (0, 0)
        assert later_s > acknowledged_s
