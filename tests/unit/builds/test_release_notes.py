"""The notes of a release, and what keeps one back."""

from __future__ import annotations

import pytest

from tests.builds.release_notes import NotReadyError, check_files, check_links, check_version, section

CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n- next\n\n## [0.2.0] - 2026-12-01\n\n### Added\n- two\n\n## [0.1.0]\n\n- one\n"
)


def test_section_of_a_version_ends_at_the_next() -> None:
    assert section(CHANGELOG, "0.2.0") == "### Added\n- two"
    assert section(CHANGELOG, "0.1.0") == "- one"


@pytest.mark.parametrize("version", ["0.3.0", "0.1", "0x1.0"])
def test_version_without_text_is_refused(version: str) -> None:
    with pytest.raises(NotReadyError, match="has no text"):
        section(CHANGELOG, version)
    with pytest.raises(NotReadyError, match="has no text"):
        section(f"## [{version}]\n\n## [0.0.1]\n- x\n", version)


def test_tag_and_package_have_one_version() -> None:
    check_version('x = 1\n__version__ = "0.1.0"\n', "0.1.0")
    with pytest.raises(NotReadyError, match=r"the package's version is 0\.1\.0, the tag's is 0\.2\.0"):
        check_version('__version__ = "0.1.0"\n', "0.2.0")
    with pytest.raises(NotReadyError, match="is missing"):
        check_version("", "0.2.0")


def test_files_are_one_source_and_wheels_of_the_version() -> None:
    check_files(["kafkaprod-0.1.0.tar.gz", "kafkaprod-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl"], "0.1.0")
    for names in ([], ["kafkaprod-0.1.0.tar.gz"], ["kafkaprod-0.1.0-cp311-cp311-linux_x86_64.whl"]):
        with pytest.raises(NotReadyError, match="are needed"):
            check_files(names, "0.1.0")
    with pytest.raises(NotReadyError, match="not of version"):
        check_files(["kafkaprod-0.1.0.tar.gz", "kafkaprod-0.0.9-cp311-cp311-linux_x86_64.whl"], "0.1.0")


def test_a_description_with_a_relative_link_is_refused() -> None:
    check_links("a.whl", "[a](https://host/a) [b](#b) ![c](https://host/c.svg)")
    with pytest.raises(NotReadyError, match=r"a\.whl: relative links \(docs/api\.md\)"):
        check_links("a.whl", "[a](docs/api.md)")
