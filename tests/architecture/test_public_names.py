"""The package's face stays small, and all of it can be used."""

import subprocess
import sys

import kafkaprod


def test_public_names_are_few_and_listed_once() -> None:
    assert len(kafkaprod.__all__) <= 25
    assert len(set(kafkaprod.__all__)) == len(kafkaprod.__all__)


def test_every_public_name_exists() -> None:
    for name in kafkaprod.__all__:
        assert getattr(kafkaprod, name) is not None


def test_star_import_gives_the_listed_names() -> None:
    """In its own process: names are loaded on first use, and nothing may depend on what was loaded before."""
    script = "from kafkaprod import *; import kafkaprod; assert set(kafkaprod.__all__) <= set(dir())"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_version_is_given() -> None:
    assert kafkaprod.__version__.count(".") >= 2
