"""Sends the package to where a session's Python workers run: to a Spark Connect server, or a cluster without it.

Compiled modules cannot be imported from a zip archive on the path, and what Spark unpacks is not on the path. So two
files travel: an archive with the packages as they are installed here, and a small zip archive for the path, whose
`kafkaprod` finds the unpacked one and becomes it. PySpark requires the same Python version on both sides anyway; the
platform must be the same, too.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from kafkaprod.errors import ConfigError
from kafkaprod.spark.session import register

# What Spark's own workers do not need, and so may lack; numpy and pyarrow they have.
_PACKAGES: Final = ("kafkaprod", "lz4", "zstandard", "crc32c", "cramjam", "isal", "fastavro")
_OPTIONAL: Final = frozenset(("cramjam", "isal", "fastavro"))
_LEFT_OUT: Final = frozenset((".pyx", ".pxd", ".pyi", ".c", ".pyc", ".html"))
_FOLDER: Final = "kafkaprod-shipped"

_STUB: Final = f'''"""Becomes the package of the same name in the archive that was unpacked beside Spark's files."""

import os
import sys

from pyspark import SparkFiles


def _unpacked():
    roots = [os.getcwd()]
    try:
        roots.insert(0, SparkFiles.getRootDirectory())
    except Exception:
        pass
    for root in roots:
        folder = os.path.join(root, "{_FOLDER}")
        if os.path.isdir(folder):
            return folder
    raise ImportError("kafkaprod was sent to this session, but its archive is in none of " + ", ".join(roots))


sys.path.append(_unpacked())
__path__[:] = [os.path.join(sys.path[-1], "kafkaprod")]
__file__ = os.path.join(__path__[0], "__init__.py")
with open(__file__) as _file:
    exec(compile(_file.read(), __file__, "exec"))
'''


def _remove_of_owner(directory: str, owner_pid: int) -> None:
    """Remove the directory; a forked child, which runs the same exit functions, must not."""
    if os.getpid() == owner_pid:
        shutil.rmtree(directory, ignore_errors=True)


def ship(spark: SparkSession) -> None:
    """Send the package, as it is installed here, to the workers of a session; then use it as if it were there.

    For Spark Connect (`SparkSession.builder.remote(...)`), where nothing can be installed on the server, and for a
    cluster whose workers lack the package. They need PyArrow, pandas, and this Python version and platform. From Spark
    4.0 on the data source is registered with the session, too.

    Raises:
        ConfigError: The package is not installed as files, from a zip archive say.
    """
    directory = tempfile.mkdtemp(prefix="kafkaprod-")
    atexit.register(_remove_of_owner, directory, os.getpid())  # executors that start later fetch it, too
    archive, stub = _pack(Path(directory))
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        remote: Any = spark
        remote.addArtifacts(f"{archive}#{_FOLDER}", archive=True)
        remote.addArtifacts(str(stub), pyfile=True)
    else:
        spark.sparkContext.addArchive(f"{archive}#{_FOLDER}")
        spark.sparkContext.addPyFile(str(stub))
    if hasattr(spark, "dataSource"):
        register(spark)


def _pack(directory: Path) -> tuple[Path, Path]:
    archive, stub = directory / f"{_FOLDER}.zip", directory / "kafkaprod-path.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for package in _PACKAGES:
            for path, name in _files(package):
                packed.write(path, name)
    with zipfile.ZipFile(stub, "w") as packed:
        packed.writestr("kafkaprod/__init__.py", _STUB)
    return archive, stub


def _files(package: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of an installed package with their names in the archive; its metadata, too."""
    try:
        installed = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        installed = []
    found = [(Path(str(path.locate())), str(path)) for path in installed]
    if not any(path.name == "__init__.py" for path, _ in found):  # an editable installation
        spec = importlib.util.find_spec(package)
        folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
        found = [(path, str(path.relative_to(folder.parent))) for folder in folders for path in folder.rglob("*")]
    is_there = False
    for path, name in sorted(found):
        if path.is_file() and path.suffix not in _LEFT_OUT and not name.startswith(".."):
            is_there = True
            yield path, name
    if not is_there and package not in _OPTIONAL:
        raise ConfigError(f"the package {package} is not installed as files: it cannot be sent")
