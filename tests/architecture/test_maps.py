"""Each room's docstring is its map, and imports follow it, at every depth."""

from __future__ import annotations

import pytest

from tests.architecture import counts, maps


@pytest.mark.parametrize("package", maps.packages())
def test_the_map_of_a_room_names_all_that_lies_in_it(package: str) -> None:
    assert maps.unnamed(package) == set()
    assert maps.misnamed(package) == []


@pytest.mark.parametrize("package", maps.packages())
def test_imports_inside_a_room_go_down_its_map(package: str) -> None:
    assert maps.arrows_up(package) == set()


def test_no_room_has_a_circle_at_any_depth() -> None:
    assert maps.circles() == {}


def test_imports_inside_functions_are_seen() -> None:
    # The command line loads each command when it is called.
    assert any(target.startswith("kafkaprod.cli.") for target in counts.imports()["kafkaprod.cli.main"])


def test_siblings_at_depth_are_seen() -> None:
    assert "format" in maps.sibling_arrows("kafkaprod.broker.storage")["log"]
    assert len(maps.packages()) > 40
