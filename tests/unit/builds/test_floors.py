"""Every extra states the lowest version of each of its packages, and has tests for `python -m tests.builds.floors`."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from tests.builds.floors import FOR_DEVELOPERS, PACKAGE, ROOT, TESTS, beside, floor, pinned, project, requirements


def test_every_extra_is_tried_by_tests_that_exist() -> None:
    assert set(TESTS) == {PACKAGE, *project()["optional-dependencies"]} - FOR_DEVELOPERS
    missing = [path for paths in TESTS.values() for path in paths if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("extra", TESTS)
def test_every_package_of_an_extra_has_a_floor_and_is_pinned_to_it(extra: str) -> None:
    without = [str(one) for one in requirements(extra) if floor(one) is None]
    assert not without
    lines = pinned(extra)
    assert all(Requirement(line).specifier.contains(str(floor(Requirement(line)))) for line in lines)
    assert len({Requirement(line).name for line in lines}) == len(lines)
    assert not {Requirement(line).name for line in lines} & set(beside(extra))


def test_a_floor_is_the_lowest_version_that_is_allowed() -> None:
    assert floor(Requirement("pandas>=2.2,<3")) == "2.2"
    assert floor(Requirement("Cython<4,>=3.3")) == "3.3"
    assert floor(Requirement("x<2")) is None
