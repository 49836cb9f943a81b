"""A CPython without the GIL that ThreadSanitizer sees, made from CPython's own source.

With the usual interpreter TSan knows of its locks, and so of the GIL, which puts all in order. This one has no GIL, and
its own loads and stores are seen, too. It is built once, beside what other tests keep for all clones, and used where it
was built: to install it would compile the standard library under TSan, for a quarter of an hour.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(os.environ.get("KAFKAPROD_TEST_CACHE") or Path.home() / ".cache" / "kafkaprod-tests") / "races"
CONFIGURE: Final = ("--disable-gil", "--with-thread-sanitizer", "--disable-test-modules", "--with-ensurepip=no")
PACKAGES: Final = (
    *("Cython>=3.3,<4", "setuptools>=80", "numpy", "lz4", "zstandard", "crc32c"),
    *("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "fastavro", "kafka-python", "prometheus-client"),
)
"""What the tests of threads need, the package's own among them."""
FIXED_ADDRESSES: Final = ("setarch", "-R")  # TSan knows no addresses as random as Linux now makes them
NO_REPORTS: Final = {"TSAN_OPTIONS": "report_bugs=0"}


def make(source: Path | None) -> Path:
    """Build the interpreter and install the packages, unless that is done; return its program.

    Args:
        source: CPython's source, 3.13 or later: a directory or an archive of one; None if it is built already.
    """
    python = DIRECTORY / "venv" / "bin" / "python"
    if python.exists():
        return python
    if source is None:
        raise SystemExit("--source is missing: a directory or archive with the source of CPython 3.13 or later")
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    tree = DIRECTORY / "cpython"
    shutil.rmtree(tree, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, tree)
    else:
        with tarfile.open(source) as archive:
            archive.extractall(DIRECTORY / "unpacked", filter="data")
        (unpacked,) = (DIRECTORY / "unpacked").iterdir()
        unpacked.rename(tree)
    environment = os.environ | NO_REPORTS | {"CFLAGS": "-O1 -g1"}
    environment.pop("PYTHONPATH", None)
    for command in (["./configure", "-q", *CONFIGURE], ["make", "-s", f"-j{os.cpu_count()}"]):
        with (DIRECTORY / "build.log").open("ab") as log:
            subprocess.run([*FIXED_ADDRESSES, *command], cwd=tree, env=environment, check=True, stdout=log, stderr=log)
    _install(tree / "python", python, environment)
    return python


def _install(built: Path, python: Path, environment: dict[str, str]) -> None:
    """Make a virtual environment, and install with the pip of this interpreter."""
    made = python.parents[1].with_suffix(".new")
    subprocess.run(
        [*FIXED_ADDRESSES, str(built), "-m", "venv", "--without-pip", str(made)], env=environment, check=True
    )
    install = [sys.executable, "-m", "pip", "--python", str(made / "bin" / "python"), "install", "-q", *PACKAGES]
    subprocess.run([*FIXED_ADDRESSES, *install], env=environment, check=True)
    made.rename(python.parents[1])


def suppressions() -> Path:
    """What CPython's developers know of their own interpreter."""
    return DIRECTORY / "cpython" / "Tools" / "tsan" / "suppressions_free_threading.txt"
