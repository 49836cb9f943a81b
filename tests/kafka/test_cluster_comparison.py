"""An embedded cluster shows clients what three nodes of Apache Kafka show them."""

import pytest

from tests.campaigns.cluster_comparison import compare

pytestmark = pytest.mark.external


def test_clients_see_the_same() -> None:
    line_count, found = compare()
    assert line_count > 100
    assert [text for text in found if not text.startswith("(")] == []
