"""How long each test file takes: kept by every run of the check, printed at its end.

    python -m tests.checking.durations          # of the last run: the dearest files, in seconds and seconds of CPU
    python -m tests.checking.durations --keep   # keep those of the last run in durations.json

`tests.check` loads this module as a plugin of pytest (`PYTEST_PLUGINS`) and names the file that it writes, one a step,
in `KAFKAPROD_DURATIONS`. The CPU is that of pytest and of the children that have ended: a file with much more time than
CPU waits. `durations.json` has what a run took once, so that steps beside each other can be cut to the same length; a
file that it does not know counts as a middling one.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "build" / "durations"
KEPT = Path(__file__).with_name("durations.json")
VARIABLE = "KAFKAPROD_DURATIONS"
MOST_PRINTED = 10

# Taken out: pytest that a test starts must not write over it.
_FILE = os.environ.pop(VARIABLE, "")
if _FILE:
    os.environ.pop("PYTEST_PLUGINS", None)
# Seconds and seconds of CPU by test file, of this process.
_spent: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test with its fixtures; those of a module or session count with the first test that wants them."""
    started, cpu = time.monotonic(), _cpu_s()
    result = yield
    spent = _spent[item.nodeid.partition("::")[0]]
    spent[0] += time.monotonic() - started
    spent[1] += _cpu_s() - cpu
    return result


def pytest_sessionfinish() -> None:
    """Write what was measured."""
    if _FILE:
        Path(_FILE).parent.mkdir(parents=True, exist_ok=True)
        rounded = {file: [round(value, 2) for value in spent] for file, spent in sorted(_spent.items())}
        Path(_FILE).write_text(json.dumps(rounded, indent=0))


def environment(title: str) -> dict[str, str]:
    """The variables with which a step's pytest measures and writes."""
    file = DIRECTORY / f"{title.replace(' ', '-')}.json"
    file.unlink(missing_ok=True)
    return {"PYTEST_PLUGINS": "tests.checking.durations", VARIABLE: str(file)}


def of_steps(titles: Iterable[str]) -> dict[str, list[float]]:
    """The seconds and seconds of CPU of each test file that these steps ran."""
    found: dict[str, list[float]] = {}
    for title in titles:
        file = DIRECTORY / f"{title.replace(' ', '-')}.json"
        found |= json.loads(file.read_text()) if file.exists() else {}
    return found


def dearest(spent: dict[str, list[float]]) -> list[str]:
    """The lines that name the test files that took longest."""
    rows = sorted(spent.items(), key=lambda row: -row[1][0])[:MOST_PRINTED]
    return [f"{seconds:7.1f} s {cpu:7.1f} s of CPU  {file}" for file, (seconds, cpu) in rows]


def shares(files: Iterable[str], count: int, together: Collection[str] = ()) -> list[list[str]]:
    """Cut test files into lists that take as long as each other, by what they took once.

    Those of `together` are in the first list, because they share what is dear to start.
    """
    kept = {file: seconds for file, (seconds, _) in json.loads(KEPT.read_text()).items()}
    middling = statistics.median(kept.values())
    lists: list[list[str]] = [[] for _ in range(count)]
    lengths = [0.0] * count
    for file in sorted(files, key=lambda file: (file not in together, -kept.get(file, middling), file)):
        shortest = 0 if file in together else lengths.index(min(lengths))
        lists[shortest].append(file)
        lengths[shortest] += kept.get(file, middling)
    return [sorted(files) for files in lists]


def _cpu_s() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def main() -> None:
    """Print the dearest files of all steps that were run last, or keep the durations of all."""
    spent = of_steps(path.stem for path in DIRECTORY.glob("*.json"))
    if sys.argv[1:] == ["--keep"]:
        kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        present = {file: times for file, times in (kept | spent).items() if (ROOT / file).exists()}
        lines = ",\n".join(f"  {json.dumps(file)}: {json.dumps(times)}" for file, times in sorted(present.items()))
        KEPT.write_text(f"{{\n{lines}\n}}\n")
    print("\n".join(dearest(spent)))


if __name__ == "__main__":
    main()
