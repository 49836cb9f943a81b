"""A broker that ends while a producer is connected: each error names the connection that cannot be made again."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import DeliveryTimeoutError, KafkaError, MetadataTimeoutError

LIMIT_S = 60.0
TIMES: dict[str, Any] = {"max_block_ms": 1500, "request_timeout_ms": 1000, "delivery_timeout_ms": 2000}


def test_each_timeout_says_that_the_broker_cannot_be_reached() -> None:
    with EmbeddedBroker(topics={"known": 1}) as broker:
        place = broker.bootstrap_servers
        with Producer(bootstrap_servers=place, linger_ms=0, **TIMES) as producer:
            producer.send("known", b"value").result(LIMIT_S)
            broker.kill()
            late = producer.send("known", b"value")
            refused = rf"{place}.*Connection refused"
            with pytest.raises(MetadataTimeoutError, match=f"topic 'unknown'.*{refused}") as unknown:
                producer.send("unknown", b"value")
            assert isinstance(unknown.value.__cause__, KafkaError)
            with pytest.raises(DeliveryTimeoutError, match=refused) as known:
                late.result(LIMIT_S)
            assert isinstance(known.value.__cause__, KafkaError)
            assert not known.value.possibly_persisted
