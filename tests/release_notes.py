"""The notes of a release, from the changelog; refuses a release that is not ready.

    python -m tests.release_notes v0.1.0 dist

Prints the section of CHANGELOG.md for the tag's version. Ends with an error if there is none, if it is empty, if the
package has another version, or if a file in the directory has another version or there is no source distribution.
Needs only the standard library.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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


def main() -> int:
    """Print the notes; return the exit status."""
    tag, directory = sys.argv[1:]
    version = tag.removeprefix("v")
    try:
        check_version((ROOT / "kafkaprod" / "__init__.py").read_text(), version)
        check_files([path.name for path in Path(directory).iterdir()], version)
        print(section((ROOT / "CHANGELOG.md").read_text(), version))
    except NotReadyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
