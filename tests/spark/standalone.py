"""A standalone Spark cluster whose two workers have addresses of their own, as speculation needs it.

Spark runs no second copy of a task on the host of the first, and for a `local-cluster` all is one host.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.kafka.process import guarded
from tests.kafka.runtime import FAST_START

HOSTS = ("127.0.0.2", "127.0.0.3")
PATIENCE_S = 300.0
JAVA_OPTIONS = {"JAVA_TOOL_OPTIONS": " ".join(FAST_START)}  # Spark's programs live for a minute
_SPARK = Path(pyspark.__file__).parent


class _Part:
    """A process of the cluster, and the first match of a pattern in its output."""

    def __init__(self, directory: Path, pattern: str, *arguments: str) -> None:
        environment = os.environ | JAVA_OPTIONS | {"SPARK_HOME": str(_SPARK), "SPARK_WORKER_DIR": str(directory)}
        self._process = subprocess.Popen(
            guarded([str(_SPARK / "bin" / "spark-class"), *arguments]),
            env=environment | {"SPARK_LOG_DIR": str(directory), "SPARK_NO_DAEMONIZE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._pattern = re.compile(pattern)
        self._found: str | None = None
        self._is_found = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # to its end, or the process would wait for a reader
            match = self._pattern.search(line)
            if match and not self._is_found.is_set():
                self._found = match.group()
                self._is_found.set()

    def found(self) -> str:
        assert self._is_found.wait(PATIENCE_S), f"no {self._pattern.pattern} in the output"
        assert self._found is not None
        return self._found

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """The master's URL; workers of one core and 1 GiB."""
    with contextlib.ExitStack() as stack:
        master = _Part(
            directory,
            r"spark://127\.0\.0\.1:\d+",
            *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
        )
        stack.callback(master.stop)
        url = master.found()
        for host in HOSTS:
            worker = _Part(
                directory,
                "Successfully registered with master",
                *("org.apache.spark.deploy.worker.Worker", "--host", host, "--port", "0", "--webui-port", "0"),
                *("--cores", "1", "--memory", "1g", url),
            )
            stack.callback(worker.stop)
            worker.found()
        yield url
