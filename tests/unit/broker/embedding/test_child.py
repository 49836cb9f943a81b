"""What an embedded broker's process makes of the options it is given."""

import json

import pytest

from kafkaprod.broker.embedding.child import parse_config
from kafkaprod.broker.embedding.embedded import EmbeddedBroker


@pytest.mark.parametrize(("options", "retention_ms"), [({}, -1), ({"retention_ms": 5}, 5)])
def test_records_of_an_embedded_broker_do_not_age_unless_it_is_told(options: dict[str, int], retention_ms: int) -> None:
    """Tests write records with old timestamps, and read them when they get to it."""
    broker = EmbeddedBroker("somewhere", **options)  # type: ignore[arg-type]
    config = parse_config(json.loads(json.dumps({"data_dir": "somewhere", "port": 0, **broker._options})))
    assert config.log.retention_ms == retention_ms
