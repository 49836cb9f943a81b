"""The notes of a release, from the changelog; refuses a release that is not ready.

    python -m tests.builds.release_notes v0.1.0 dist

Prints the section of CHANGELOG.md for the tag's version. Ends with an error if there is none, if it is empty, if the
package has another version, if a file in the directory has another version, if there is no source distribution, or if a
link of a description is relative: an index has no other file.
Needs only the standard library.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class NotReadyError(Exception):
    """The tag, the changelog, the package and the files do not fit together."""


def section(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, without its heading."""
    match = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    notes = match[1].strip() if match else ""
    if not notes:
        raise NotReadyError(f"CHANGELOG.md has no text under ## [{version}]")
    return notes


def check_version(source: str, version: str) -> None:
    """Compare with `__version__` in the text of the package's __init__.py."""
    match = re.search(r'^__version__(?:: \w+)? = "([^"]+)"', source, re.MULTILINE)
    if match is None or match[1] != version:
        raise NotReadyError(f"the package's version is {match[1] if match else 'missing'}, the tag's is {version}")


def check_files(names: list[str], version: str) -> None:
    """A source distribution, at least one wheel, and nothing of another version."""
    if strangers := [
        name for name in names if not name.startswith(f"kafkaprod-{version}") or name[-4:] not in (".whl", "r.gz")
    ]:
        raise NotReadyError(f"not of version {version}: {', '.join(sorted(strangers))}")
    if f"kafkaprod-{version}.tar.gz" not in names or not any(name.endswith(".whl") for name in names):
        raise NotReadyError(
            f"a source distribution and wheels are needed, there are: {', '.join(sorted(names)) or 'none'}"
        )


def check_links(name: str, description: str) -> None:
    """Refuse a description whose links lead to files beside it."""
    if relative := re.findall(r"\]\((?!\w+:|#)([^)\s]+)\)", description):
        raise NotReadyError(
            f"{name}: relative links ({', '.join(relative[:3])}): build it with KAFKAPROD_REPOSITORY set"
        )


def described(path: Path) -> str:
    """Return the metadata of a distribution, which ends with its description."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return wheel.read(name).decode()
    with tarfile.open(path) as source:
        member = source.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
        return member.read().decode() if member is not None else ""


def main() -> int:
    """Print the notes; return the exit status."""
    tag, directory = sys.argv[1:]
    version = tag.removeprefix("v")
    try:
        check_version((ROOT / "kafkaprod" / "__init__.py").read_text(), version)
        check_files([path.name for path in Path(directory).iterdir()], version)
        for path in Path(directory).iterdir():
            check_links(path.name, described(path))
        print(section((ROOT / "CHANGELOG.md").read_text(), version))
    except NotReadyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
