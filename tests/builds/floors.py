"""The tests near each extra with the lowest versions that pyproject.toml allows.

    python -m tests.builds.floors                 # every extra, one after the other
    python -m tests.builds.floors avro load -- -x # some; what follows `--` goes to pytest

Each extra has a virtual environment of its own, kept in tests/.cache, with exactly the floors of the extra and of the
package itself, and the newest of what they and the tests need beside. The tree's own build is used.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.builds.tree_copy import ROOT

PACKAGE: Final = "package"  # not an extra: what every installation has
FOR_DEVELOPERS: Final = frozenset({"test", "docs", "dev", "dev-all"})  # no user installs them
TESTS: Final[dict[str, tuple[str, ...]]] = {
    PACKAGE: ("tests/unit/test_compression.py", "tests/unit/_core", "tests/integration/test_producer_api.py"),
    "arrow": ("tests/unit/tables", "tests/unit/_core/columns", "tests/integration/test_send_table.py"),
    "avro": ("tests/unit/loader/formats/test_avro_files.py", "tests/property/test_avro_rows.py"),
    **dict.fromkeys(("azure", "gcs", "s3"), ("tests/unit/loader/opening/remote", "tests/unit/loader/finding")),
    "charts": ("tests/unit/cli/test_main.py", "tests/integration/test_commands.py"),
    "delta": ("tests/unit/loader/finding/test_delta_tables.py", "tests/integration/test_load_delta_tables.py"),
    "gzip": ("tests/unit/test_compression.py", "tests/unit/test_compression_attacks.py"),
    "iceberg": ("tests/unit/loader/finding/test_iceberg_tables.py", "tests/integration/test_load_iceberg_tables.py"),
    "json": ("tests/unit/hooks",),
    "kerberos": ("tests/unit/security", "tests/kafka/test_kerberos.py"),
    "load": ("tests/unit/loader", "tests/unit/cli", "tests/integration/test_load.py"),
    "metrics": ("tests/unit/metrics",),
    "msk": ("tests/unit/security/test_msk.py", "tests/integration/test_msk_login.py"),
    "oauth": ("tests/unit/security/test_token_endpoint.py", "tests/integration/test_oauth.py"),
    "otel": ("tests/integration/test_opentelemetry.py",),
    "proxy": ("tests/unit/net/test_proxy.py", "tests/integration/test_proxies.py"),
    "regex": ("tests/unit/broker/coordinator",),
    "registry": ("tests/unit/tables/test_registry.py", "tests/integration/test_schema_registry.py", "tests/compat"),
    "snappy": ("tests/unit/test_compression.py", "tests/unit/compression"),
    "spark": ("tests/unit/spark", "tests/spark/test_batch_write.py"),
}
"""The tests near each extra."""


def project() -> Any:
    """Return pyproject.toml's table of the project."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(extra: str) -> list[Requirement]:
    """Return what an extra requires, without extras of this package."""
    table = project()
    lines = table["dependencies"] if extra == PACKAGE else table["optional-dependencies"][extra]
    return [one for one in map(Requirement, lines) if one.name != "kafkaprod"]


def floor(requirement: Requirement) -> str | None:
    """Return the lowest version that a requirement allows; None: it states none."""
    return next((one.version for one in requirement.specifier if one.operator in (">=", "~=", "==")), None)


def pinned(extra: str) -> list[str]:
    """Return the requirements of an extra and of the package, each at its floor."""
    found: dict[str, str] = {}
    for one in (*requirements(extra), *requirements(PACKAGE)):
        extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
        found.setdefault(canonicalize_name(one.name), f"{one.name}{extras}=={floor(one)}")
    return list(found.values())


def beside(extra: str) -> list[str]:
    """Return what tests need beside an extra, in any version that fits."""
    taken = {canonicalize_name(one.name) for one in (*requirements(extra), *requirements(PACKAGE))}
    others = [*requirements("test"), *map(Requirement, ("setuptools", "packaging"))]
    return [one.name for one in others if canonicalize_name(one.name) not in taken]


def environment_for(extra: str) -> str:
    """Make the virtual environment of an extra if there is none; return its interpreter."""
    directory = ROOT / "tests" / ".cache" / f"floor-{extra}"
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", *pinned(extra), *beside(extra)], check=True)
    return str(python)


def try_floor(extra: str, further: Sequence[str]) -> bool:
    """Run the tests near an extra at its floors; return whether all passed."""
    print(f"-- {extra}: {', '.join(pinned(extra))}", flush=True)
    # Deprecations are those of old packages.
    command = [environment_for(extra), "-m", "pytest", "-q", "-W", "default", *TESTS[extra], *further]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Run; return 0 if every floor holds."""
    own = list(itertools.takewhile(lambda argument: argument != "--", sys.argv[1:]))
    parser = argparse.ArgumentParser(prog="python -m tests.builds.floors", description=__doc__.partition("\n")[0])
    parser.add_argument("extras", nargs="*", choices=[*TESTS, []], help="default: all")
    extras = parser.parse_args(own).extras or list(TESTS)
    failed = [extra for extra in extras if not try_floor(extra, sys.argv[len(own) + 2 :])]
    print(f"{len(extras) - len(failed)} of {len(extras)} floors hold; do not: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
