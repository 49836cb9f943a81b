"""Build a module of this folder against the core's .pxd files, once per version of both."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
HEADER = "kafkaprod/_core/machine/machine.h"
SCRIPT = """
import sys
from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    script_args=["build_ext", "--build-lib", sys.argv[2], "--build-temp", sys.argv[2]],
    ext_modules=cythonize(
        [Extension(sys.argv[1], [f"tests/native/{sys.argv[1]}.pyx"], include_dirs=["."])],
        build_dir=sys.argv[2],
        include_path=["."],
        compiler_directives={"language_level": 3, "freethreading_compatible": True},
        quiet=True,
    ),
)
"""


def load(name: str) -> ModuleType:
    """Return the module `name` of this folder, built if it is not yet."""
    sources = [
        ROOT / "tests" / "native" / f"{name}.pyx",
        *sorted((ROOT / "kafkaprod" / "_core").rglob("*.pxd")),
        ROOT / HEADER,
    ]
    read = (path.read_bytes() for path in sources)
    version = hashlib.sha256(sys.version.encode() + SCRIPT.encode() + b"".join(read)).hexdigest()[:16]
    directory = ROOT / "tests" / ".cache" / "native" / version
    if not list(directory.glob(f"{name}.*.so")):
        directory.mkdir(parents=True, exist_ok=True)
        # Test runs side by side may build the same module: each elsewhere, and the result appears whole.
        with tempfile.TemporaryDirectory(dir=directory) as build:
            command = [sys.executable, "-c", SCRIPT, name, build]
            done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(
                    f"tests/native/{name}.pyx cannot be built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
                )
            (made,) = Path(build).glob(f"{name}.*.so")
            made.rename(directory / made.name)
    (built,) = directory.glob(f"{name}.*.so")
    spec = importlib.util.spec_from_file_location(name, built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
