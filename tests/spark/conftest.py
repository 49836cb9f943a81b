"""One Spark session for all tests here: local[2] with one retry, the interpreter's own environment in the workers."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.sessions import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Tests may set SQL options, and must put them back."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with local_session("local[2,2]") as session:
        yield session
