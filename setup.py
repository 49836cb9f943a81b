"""Build the extension modules of kafkaprod._core; everything else is in pyproject.toml.

KAFKAPROD_DEBUG=1 builds with assertions and poisoned memory.
KAFKAPROD_PORTABLE=1 builds, on Linux, the code of systems that have neither epoll nor futexes.
KAFKAPROD_SANITIZE=address,undefined (or thread) builds with those sanitizers; see tests/sanitizers/README.md.
KAFKAPROD_REPOSITORY, an address that the project's workflow gives with the revision KAFKAPROD_REVISION, makes the links
of the package's description absolute. Variables that any workflow has would name whoever builds the package in theirs.
"""

import os
import re
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

DEBUG = os.environ.get("KAFKAPROD_DEBUG") == "1"
SANITIZE = os.environ.get("KAFKAPROD_SANITIZE", "")

directives = {
    "language_level": 3,
    # On: it costs nothing where it counts, because hot loops go over C pointers, which it does not concern.
    "boundscheck": True,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": DEBUG,
    "embedsignature": True,
    "freethreading_compatible": True,
    "auto_pickle": False,  # no object of the core can be pickled: it would be a second way to make one
    # A pure function that raises where its declaration says noexcept would only print: make it an error instead.
    "legacy_implicit_noexcept": False,
}

compile_args = ["-O3", "-g0", "-fno-strict-aliasing"]
# Where the compiler happens to put the append loop is otherwise worth 5 % of a record, and each edit moves it.
compile_args += ["-falign-functions=64", "-falign-loops=32"]
link_args = []
if sysconfig.get_platform() in ("linux-x86_64", "linux-i686"):  # of the target, which may not be this machine
    compile_args.append("-fcf-protection=full")
# What a stray write could use is checked (stack, copies into known buffers) or read-only (addresses of functions).
compile_args += ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
HARDENED_LINK = ["-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack"]
if sys.platform == "linux":
    link_args += HARDENED_LINK
macros = [("CYTHON_USE_SYS_MONITORING", "0")]
if os.environ.get("KAFKAPROD_PORTABLE") == "1":
    macros.append(("KAFKAPROD_PORTABLE", "1"))
if DEBUG:
    compile_args = ["-O1", "-g"]
    # No line tracing: a traced line without the GIL takes it while it holds a partition's lock, and threads deadlock.
    macros += [("KAFKAPROD_DEBUG", "1")]
if SANITIZE:
    # -fno-wrapv: CPython's default -fwrapv would hide signed overflow from UBSan.
    compile_args = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-wrapv", f"-fsanitize={SANITIZE}"]
    link_args = [f"-fsanitize={SANITIZE}"]
    macros = [("KAFKAPROD_DEBUG", "1")]
    if "undefined" in SANITIZE:
        compile_args.append("-fno-sanitize-recover=undefined")
if sys.platform != "win32":
    link_args.append("-pthread")

HEADERS = sorted(str(path) for path in Path("kafkaprod").rglob("*.h"))
extensions = [
    Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        include_dirs=["."],
        depends=HEADERS,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        define_macros=macros,
    )
    for path in sorted(Path("kafkaprod").rglob("*.pyx"))
]


class ParallelBuild(build_ext):
    """Compiles as many modules at once as there are processors, unless told how many."""

    def finalize_options(self):
        """See the base class."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self):
        """Leave out the rpath of the interpreter that builds: it names a directory of the build machine."""
        self.compiler.linker_so = [part for part in self.compiler.linker_so if not part.startswith("-Wl,-rpath")]
        self.compiler.runtime_library_dirs = []
        super().build_extensions()


def description(text, environment=os.environ):
    """Return README.md for a package index, which has only this page: links and pictures lead to the repository.

    Without KAFKAPROD_REPOSITORY (a build elsewhere) the text stays as it is.
    """
    repository = environment.get("KAFKAPROD_REPOSITORY")
    if not repository:
        return text
    revision = environment.get("KAFKAPROD_REVISION") or "main"

    def absolute(match):
        kind = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}({repository}/{kind}/{revision}/{match[2]})"

    return re.sub(r"(!?\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)", absolute, text)


def project_urls(environment=os.environ):
    """Return the addresses that a package index shows beside the description."""
    repository = environment.get("KAFKAPROD_REPOSITORY")
    if not repository:
        return {}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/main/docs/index.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


class Described(Distribution):
    """Completes what pyproject.toml says of the package with addresses that only a build of the workflow knows."""

    def parse_config_files(self, *args, **options):
        """See the base class."""
        super().parse_config_files(*args, **options)
        self.metadata.long_description = description(self.metadata.long_description or "")
        self.metadata.project_urls = project_urls()


if __name__ == "__main__":
    setup(
        distclass=Described,
        cmdclass={"build_ext": ParallelBuild},
        # An editable installation is a line with this directory in a .pth file, not an import hook: Spark (pkgutil),
        # editors and type checkers see the packages, and programs in the clone find compiled modules beside them.
        options={"editable_wheel": {"mode": "compat"}},
        ext_modules=cythonize(
            extensions,
            build_dir="build",
            compiler_directives=directives,
            annotate=os.environ.get("KAFKAPROD_ANNOTATE") == "1",
            nthreads=0,
        ),
    )
