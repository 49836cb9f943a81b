"""What a worker of Spark leaves out of its garbage collections."""

import subprocess
import sys

import pyspark  # noqa: F401  (the processes import it)

PROGRAM = """
import gc
{imports}
from kafkaprod.spark.worker import freeze_imports

class Cycle:
    def __init__(self):
        self.itself = self

freeze_imports()
first = gc.get_freeze_count()
later = Cycle()
freeze_imports()
seen = any(found is later for found in gc.get_objects())
print(first > 10_000, gc.get_freeze_count() > 0, seen)
"""


def run(imports: str, *before: str) -> str:
    """Run the program in a process of its own; return what it prints."""
    command = [sys.executable, *before, "-c", PROGRAM.format(imports=imports)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_a_worker_leaves_its_imports_out_once_and_looks_at_what_comes_later() -> None:
    assert run("import pyspark.daemon") == "True True True"


def test_the_process_of_a_driver_is_left_alone() -> None:
    assert run("import pyspark") == "False False True"
