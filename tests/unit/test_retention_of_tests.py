"""Brokers of tests keep records however old their timestamps are.

Kafka's default of 7 days goes by the records' timestamps, and is looked at 30 s after the start and every 5 minutes: a
test whose data is older fails only if it is slow. So no topic of a test needs to remember `retention.ms=-1`.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.broker_properties import broker_properties

_BELOW_TESTS = Path(__file__).parents[1]


def test_kafka_nodes_keep_records_whatever_their_timestamps(tmp_path: Path) -> None:
    properties = broker_properties(
        tmp_path, coordination={}, node_count=1, listening={}, advertised={}, certificates=None
    )
    assert properties["log.retention.ms"] == -1


def test_embedded_brokers_keep_records_whatever_their_timestamps() -> None:
    assert inspect.signature(EmbeddedBroker).parameters["retention_ms"].default == -1


def test_every_kafka_of_a_test_gets_its_properties_from_one_place() -> None:
    """Another `server.properties` would need the option, too."""
    writers = {
        path.name
        for path in _BELOW_TESTS.rglob("*.py")
        if ".cache" not in path.relative_to(_BELOW_TESTS).parts  # copies of the tree for other builds
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value == "log.dirs"
    }
    of_embedded = {"test_arguments.py", "test_broker_log_directories.py", "test_log_directories.py"}
    more_directories = "cluster.py"  # adds to what broker_properties() gave
    assert writers - of_embedded - {Path(__file__).name, more_directories} == {"broker_properties.py"}
