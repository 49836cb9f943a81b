"""Build the package as it would be released, install it where nothing else is, and use it.

    python -m tests.builds.wheel_smoke

Builds the source distribution and, from that alone, the wheel; looks at what is in them; installs the wheel into a new
virtual environment; runs the quickstart and one benchmark with it, away from the source tree. Ends with an error at the
first thing that is not as it should be. Needs a C compiler and a package index; about two minutes.

The compiler does not optimise: that takes three quarters of its time, and what all other tests use was optimised.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
_SHOWN_LINES = 5
_TOP_LEVEL = ("kafkaprod", "pyspark_kafkaprod")  # Spark looks for data sources in modules named so
_EXTENSION = sysconfig.get_config_var("EXT_SUFFIX")


_PAGE = PurePosixPath("kafkaprod/broker/window/page/index.html")


class NotAsReleasedError(Exception):
    """A distribution lacks a file or has one too many."""


def check_source(names: Iterable[str]) -> None:
    """A source distribution has the Cython sources and the types, and no generated C."""
    files = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in names}
    _refuse(files - {_PAGE}, (".so", ".html"))
    _refuse((path for path in files if path.parts[0] == "kafkaprod"), (".c",))  # there C is what Cython makes
    # Those of tests and benchmarks have none: nobody installs them.
    compiled = {path.with_suffix("") for path in files if path.suffix == ".pyx" and path.parts[0] == "kafkaprod"}
    _require(files, ("setup.py", "pyproject.toml", "README.md", "LICENSE", "kafkaprod/py.typed", str(_PAGE)))
    _require(files, (f"{path}.pyi" for path in compiled))
    if not compiled:
        raise NotAsReleasedError("no .pyx file in the source distribution")


def check_wheel(names: Iterable[str]) -> None:
    """A wheel has a stub for every compiled module, and nothing but the package."""
    files = {PurePosixPath(name) for name in names}
    _refuse(files - {_PAGE}, (".c", ".html"))
    compiled = [str(path).removesuffix(_EXTENSION) for path in files if path.suffix == ".so"]
    sources = [path.with_suffix("") for path in ROOT.glob("kafkaprod/**/*.pyx")]
    _require(files, ("kafkaprod/py.typed", "pyspark_kafkaprod/__init__.py", str(_PAGE)))
    _require(files, (f"{path.relative_to(ROOT)}{_EXTENSION}" for path in sources))
    _require(files, (f"{path}.pyi" for path in compiled))
    if strangers := {path.parts[0] for path in files if path.parts[0].partition("-")[0] not in _TOP_LEVEL}:
        raise NotAsReleasedError(f"the wheel would install {sorted(strangers)}")


def _refuse(files: Iterable[PurePosixPath], suffixes: tuple[str, ...]) -> None:
    if found := sorted(str(path) for path in files if path.suffix in suffixes):
        raise NotAsReleasedError(f"not to be distributed: {', '.join(found)}")


def _require(files: set[PurePosixPath], names: Iterable[str]) -> None:
    if missing := sorted(name for name in names if PurePosixPath(name) not in files):
        raise NotAsReleasedError(f"missing: {', '.join(missing)}")


def _quick_compiler(directory: Path) -> dict[str, str]:
    """The variable that names a C compiler which is asked last, so in spite of what is before, not to optimise."""
    usual = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc")
    path = directory / "quick-cc"
    path.write_text(f'#!/bin/sh\nexec {usual} "$@" -O0 -U_FORTIFY_SOURCE\n')
    path.chmod(0o755)
    return {"CC": str(path)}


def _run(*command: str | Path, directory: Path, environment: Mapping[str, str] = {}) -> None:
    """Run a command; its output is shown if it fails, and the end of it if not."""
    print("$", *command, flush=True)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = done.stdout.splitlines()
    print("\n".join(lines[-_SHOWN_LINES:] if done.returncode == 0 else lines), flush=True)
    done.check_returncode()


def main() -> None:
    """Build, check, install, use."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        build = (sys.executable, "-m", "build", "--outdir", directory, ROOT)
        _run(*build, directory=directory, environment=_quick_compiler(directory))
        (source,) = directory.glob("*.tar.gz")
        (wheel,) = directory.glob("*.whl")
        with tarfile.open(source) as archive:
            check_source(member.name for member in archive.getmembers() if member.isfile())
        with zipfile.ZipFile(wheel) as archive:
            check_wheel(archive.namelist())
        venv.create(directory / "venv", with_pip=True)
        scripts = directory / "venv" / "bin"
        _run(scripts / "pip", "install", "-q", f"{wheel}[snappy]", "confluent-kafka", directory=directory)
        _run(scripts / "kafkaprod", "quickstart", directory=directory)
        # A copy: beside the source tree, "kafkaprod" would be the source tree's.
        shutil.copytree(ROOT / "benchmarks", directory / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
        benchmark = ("-m", "benchmarks.compare", "--case", "1-topic-blocks", "--turns", "1", "--seconds", "0.3")
        _run(scripts / "python", *benchmark, directory=directory)
    print("the wheel builds, installs and works")


if __name__ == "__main__":
    main()
