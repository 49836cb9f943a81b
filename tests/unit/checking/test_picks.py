"""The tests that are picked for a change can notice it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.checking.picks import NEAR, ROOT, is_near_test, picked, tree_files
from tests.checking.uses import FOUND_BY_NAME, Uses
from tests.mutants.table import MUTANTS, Mutant

TREE = {
    "kafkaprod/__init__.py": '_MODULES = {"Producer": "producer", "Error": "errors"}\n',
    "kafkaprod/producer.py": "from kafkaprod._core.batch import Batch\n",
    "kafkaprod/errors.py": '"""kafkaprod.producer"""\nif TYPE_CHECKING:\n    from kafkaprod import producer\n',
    "kafkaprod/_core/batch.pyx": "from kafkaprod._core.pool cimport (\n    Pool,\n)\nimport kafkaprod.errors\n",
    "kafkaprod/_core/batch.pxd": "",
    "kafkaprod/_core/pool.pxd": 'cdef extern from "kafkaprod/_core/pool.h":\n    pass\n',
    "kafkaprod/_core/pool.pyx": "",
    "kafkaprod/_core/pool.h": "",
    "kafkaprod/broker/server/router.py": "import_module(name)\n",
    "kafkaprod/broker/handlers/fetch.py": "",
    "kafkaprod/cli/__main__.py": "import kafkaprod.cli.main\n",
    "kafkaprod/cli/main.py": "import_module(name)\n",
    "kafkaprod/cli/tail.py": "",
    "tests/conftest.py": "from tests.support.fixtures_broker import broker\n",
    "tests/support/fixtures_broker.py": "from kafkaprod.broker.server import router\n",
    "tests/support/table.py": 'ROWS = ["cli/tail.py"]\n',
    "tests/native/building.py": "",
    "tests/native/faces.pyx": "from kafkaprod._core.pool cimport Pool\n",
    "tests/unit/test_errors.py": "def test():\n    import kafkaprod\n    kafkaprod.Error\n",
    "tests/unit/test_producer.py": "from kafkaprod import Producer\n",
    "tests/unit/test_pool.py": 'from tests.native.building import load\nload("faces")\n',
    "tests/unit/test_broker.py": "def test(broker):\n    pass\n",
    "tests/unit/test_commands.py": 'run([sys.executable, "-m", "kafkaprod.cli"])\n',
    "tests/unit/test_page.py": 'PAGE = ROOT / "docs" / "json.md"\n',
    "tests/unit/test_rows.py": "from tests.support import table\n",
    "tests/unit/test_search.py": "for path in ROOT.rglob('*.py'):\n    pass\n",
    "tests/unit/test_vectors.py": 'VECTORS = Path(__file__).with_name("vectors")\n',
    "tests/architecture/test_rules.py": "",
}


def names(tree: dict[str, str], root: Path, *changed: str) -> set[str]:
    """The tests that are picked in a small tree, by the last word of their names."""
    for path, text in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    found = picked(Uses(root, frozenset(tree) | set(changed)), changed)
    return {Path(path).stem.removeprefix("test_") for path in found}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("kafkaprod/errors.py", "errors producer"),
        ("kafkaprod/producer.py", "producer"),
        ("kafkaprod/_core/pool.h", "producer pool"),
        ("kafkaprod/_core/pool.pyx", "producer pool"),
        ("kafkaprod/broker/handlers/fetch.py", "broker"),
        ("kafkaprod/cli/tail.py", "commands rows"),
        ("kafkaprod/cli/new.py", "commands"),
        ("tests/support/fixtures_broker.py", "broker"),
        ("tests/unit/test_page.py", "page"),
        ("docs/json.md", "page"),
        ("docs/other.md", "page"),
        ("README.md", ""),
        ("tests/unit/vectors/one.json", "vectors"),
    ],
)
def test_what_uses_a_changed_file_is_picked(tmp_path: Path, changed: str, expected: str) -> None:
    assert names(TREE, tmp_path, changed) == {*expected.split(), "rules", "search"}


@pytest.mark.parametrize("changed", ["pyproject.toml", "setup.py", "tests/conftest.py", "tests/corpus/x.bin"])
def test_what_stands_under_all_tests_picks_all(tmp_path: Path, changed: str) -> None:
    everything = {Path(path).stem.removeprefix("test_") for path in TREE if is_near_test(path)}
    assert names(TREE, tmp_path, changed) == everything


def test_names_that_packages_load_on_first_use_are_followed_from_their_users(tmp_path: Path) -> None:
    tree = TREE | {"tests/unit/test_more.py": 'PROGRAM = "from kafkaprod import Producer"\n'}
    assert "more" in names(tree, tmp_path, "kafkaprod/_core/batch.pyx")
    assert "more" not in names(tree, tmp_path, "kafkaprod/cli/tail.py")


@cache
def uses() -> Uses:
    return Uses(ROOT, tree_files())


def picks(path: str) -> list[str]:
    return picked(uses(), [path])


NOTICED_NEAR = [mutant for mutant in MUTANTS if any(test.startswith(NEAR) for test in mutant.tests)]


@pytest.mark.parametrize("mutant", NOTICED_NEAR, ids=lambda mutant: mutant.name)
def test_a_planted_bug_picks_a_test_that_notices_it(mutant: Mutant) -> None:
    found = picks(f"kafkaprod/{mutant.path}")
    named = tuple(test.partition("::")[0] for test in mutant.tests if test.startswith(NEAR))
    assert [test for test in found if test.startswith(named) and not test.startswith("tests/architecture")]


def test_most_changes_pick_a_small_part() -> None:
    every = sum(map(is_near_test, uses().files))
    shares = [len(picks(f"kafkaprod/{path}")) / every for path in sorted({mutant.path for mutant in MUTANTS})]
    assert sum(shares) / len(shares) < 0.4


@pytest.mark.parametrize("path", FOUND_BY_NAME)
def test_what_finds_modules_by_name_still_does(path: str) -> None:
    text = (ROOT / path).read_text()
    assert "import_module(f" in text
