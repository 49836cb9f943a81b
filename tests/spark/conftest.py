"""One Spark session for all tests here: local[2], Spark's own retries, the interpreter's environment in the workers."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkaprod.cli.doctor_redaction import ADVISED
from tests.spark.attempts import attempts
from tests.spark.sessions import local_session
from tests.spark.ways import VERSION

__all__ = ["attempts"]

HERE = Path(__file__).parent
TIMEOUT_S = 900
"""A timeout cuts py4j off in the midst of an answer, so that every later test fails, too: it is for what hangs only."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect, and so report, what this PySpark does not have: `@pytest.mark.spark("4.1")` needs 4.1 or later.

    All tests of this directory get TIMEOUT_S.
    """
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        needs = [mark.args[0] for mark in item.iter_markers("spark")]
        is_there = all(tuple(int(part) for part in needed.split(".")) <= VERSION for needed in needs)
        (kept if is_there else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Tests may set SQL options, and must put them back. An event log is kept; it hides what docs/spark.md advises."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    more = {
        "spark.redaction.regex": ADVISED,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": tmp_path_factory.mktemp("events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with local_session("local[2,4]", **more) as session:
        yield session
