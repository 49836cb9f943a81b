"""What people see of producers, results and brokers in a prompt or a notebook."""

from __future__ import annotations

import numpy as np

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.results.shown import outcome_table


def test_a_table_has_a_line_for_each_partition_and_escapes_its_title() -> None:
    shown = outcome_table("<x>", np.array([1, 0, 1, -1]), np.array([7, 3, 8, -1]), np.array([False, True, False, True]))
    assert shown.startswith("<div>&lt;x&gt;</div><table><tr><th>partition</th>")
    assert "<td>0</td><td>1</td><td>3 to 3</td><td>1</td>" in shown
    assert "<td>1</td><td>2</td><td>7 to 8</td><td>0</td>" in shown
    assert "<td>none</td><td>1</td><td></td><td>1</td>" in shown


def test_of_many_partitions_the_first_ones_are_shown() -> None:
    numbers = np.arange(25)
    assert "<tr><td>and 5 more</td></tr></table>" in outcome_table("x", numbers, numbers, numbers < 0)


def test_a_broker_a_producer_and_a_result_say_what_they_are() -> None:
    broker = EmbeddedBroker(topics={"orders": 2})
    assert repr(broker) == "<EmbeddedBroker without an address, not running>"
    with broker:
        servers = broker.bootstrap_servers
        assert repr(broker) == f"<EmbeddedBroker at {servers}, running>"
        with Producer(bootstrap_servers=servers, client_id="me") as producer:
            assert repr(producer) == f"<Producer of {servers}, client_id='me', open>"
            result = producer.send_many("orders", [b"a", b"b"], partition=1).result(20)
            assert repr(result) == "<BlockResult of 2 rows, done, 0 failed>"
            assert "<td>1</td><td>2</td><td>0 to 1</td><td>0</td>" in result._repr_html_()
            table = producer.send_table("orders", [{"value": "c"}], partition=1).result(20)
            assert "<td>1</td><td>1</td><td>2 to 2</td><td>0</td>" in table._repr_html_()
        assert repr(producer) == f"<Producer of {servers}, client_id='me', closed>"


async def test_an_async_producer_says_what_it_is() -> None:
    async with AsyncProducer(bootstrap_servers="localhost:1", client_id="me") as producer:
        assert repr(producer) == "<AsyncProducer of localhost:1, client_id='me', open>"
