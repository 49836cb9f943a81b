"""The package's face stays small."""

from types import ModuleType

import kafkaprod


def _public_names() -> set[str]:
    return {
        name
        for name, value in vars(kafkaprod).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }


def test_public_names_are_few() -> None:
    assert len(_public_names()) <= 25


def test_public_names_are_the_listed_ones() -> None:
    listed = set(getattr(kafkaprod, "__all__", ()))
    # They are loaded on first use: what is there so far must be listed, what is listed must be there.
    assert _public_names() <= listed
    assert all(hasattr(kafkaprod, name) for name in listed)


def test_version_is_given() -> None:
    assert kafkaprod.__version__.count(".") >= 2
