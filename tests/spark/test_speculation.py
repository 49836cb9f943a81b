"""Speculation: a second copy of a task that is slow runs beside it, and both send their rows."""

from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.spark.topics import committed_values, seen_once
from tests.spark.two_copies import ROWS, run_two_copies


@pytest.mark.slow
def test_speculative_copy_repeats_rows_that_the_headers_tell(
    embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path
) -> None:
    expected = run_two_copies(embedded_broker.bootstrap_servers, topic_name, tmp_path)
    count, values = seen_once(embedded_broker.bootstrap_servers, topic_name)
    assert count == ROWS + ROWS // 4  # both copies of one task of four sent all of its rows
    assert values == expected


@pytest.mark.slow
def test_speculative_copy_and_first_attempt_write_each_row_once_in_transactions(
    embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path
) -> None:
    expected = run_two_copies(embedded_broker.bootstrap_servers, topic_name, tmp_path, is_transactional=True)
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected
