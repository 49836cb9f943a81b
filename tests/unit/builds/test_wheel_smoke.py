"""The check of the distributions notices what must not be in them and what is missing."""

import pytest

from tests.builds.wheel_smoke import ROOT, NotAsReleasedError, check_source, check_wheel

PAGE = "kafkaprod/broker/window/page/index.html"
SOURCE = [
    "kafkaprod-1/setup.py",
    "kafkaprod-1/pyproject.toml",
    "kafkaprod-1/README.md",
    "kafkaprod-1/LICENSE",
    "kafkaprod-1/kafkaprod/py.typed",
    "kafkaprod-1/kafkaprod/broker/window/page/index.html",
    "kafkaprod-1/kafkaprod/_core/queues/batch.pyx",
    "kafkaprod-1/kafkaprod/_core/queues/batch.pyi",
]


def test_source_distribution_with_sources_and_stubs_is_right() -> None:
    check_source([*SOURCE, "kafkaprod-1/tests/native/probe.pyx", "kafkaprod-1/tests/fuzz/harness.c"])


def test_source_distribution_with_generated_c_is_refused() -> None:
    with pytest.raises(NotAsReleasedError, match=r"batch\.c"):
        check_source([*SOURCE, "kafkaprod-1/kafkaprod/_core/batch.c"])


def test_source_distribution_without_a_stub_is_refused() -> None:
    with pytest.raises(NotAsReleasedError, match=r"kafkaprod/_core/queues/batch\.pyi"):
        check_source(SOURCE[:-1])


def test_wheel_without_a_compiled_module_is_refused() -> None:
    assert list(ROOT.glob("kafkaprod/_core/*/*.pyx"))
    with pytest.raises(NotAsReleasedError, match=r"missing: .*kafkaprod/_core/queues/accumulator"):
        check_wheel(["kafkaprod/py.typed", "pyspark_kafkaprod/__init__.py", PAGE])


def test_distributions_without_the_broker_s_page_are_refused() -> None:
    with pytest.raises(NotAsReleasedError, match=r"missing: .*index\.html"):
        check_source([name for name in SOURCE if not name.endswith(PAGE)])
    with pytest.raises(NotAsReleasedError, match=r"missing: .*index\.html"):
        check_wheel(["kafkaprod/py.typed", "pyspark_kafkaprod/__init__.py"])
