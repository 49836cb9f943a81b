"""Registering with a session: what it needs, and what the source that is registered refuses."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from kafkaprod.errors import ConfigError
from kafkaprod.spark.session import register
from kafkaprod.spark.source import KafkaProdSource


def test_a_stream_cannot_be_read_and_the_error_names_the_source_that_can() -> None:
    with pytest.raises(ConfigError, match=r"read a stream with Spark's own source, format\('kafka'\)"):
        KafkaProdSource({}).streamReader(StructType())


def test_without_pyspark_the_import_names_the_extra() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import kafkaprod.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    *_, last = done.stderr.splitlines()
    assert last == "ImportError: kafkaprod.spark needs PySpark: pip install 'kafkaprod[spark]'"


def test_register_needs_spark_4() -> None:
    class Registry:
        registered: type | None = None

        def register(self, source: type) -> None:
            self.registered = source

    registry = Registry()
    register(SimpleNamespace(dataSource=registry))  # type: ignore[arg-type]
    assert registry.registered is KafkaProdSource
    with pytest.raises(ConfigError, match=r"needs Spark 4\.0 or later"):
        register(SimpleNamespace())  # type: ignore[arg-type]
