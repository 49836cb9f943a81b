"""The package's face stays small, and all of it can be used."""

import subprocess
import sys

import kafkaprod


def test_public_names_are_few_and_listed_once() -> None:
    assert len(kafkaprod.__all__) <= 25
    assert len(set(kafkaprod.__all__)) == len(kafkaprod.__all__)


def test_every_public_name_exists() -> None:
    for name in kafkaprod.__all__:
        assert getattr(kafkaprod, name) is not None


def test_star_import_gives_the_listed_names() -> None:
    """In its own process: names are loaded on first use, and nothing may depend on what was loaded before."""
    script = "from kafkaprod import *; print(*dir())"
    names = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert set(kafkaprod.__all__) <= set(names)


def test_version_is_given() -> None:
    assert kafkaprod.__version__.count(".") >= 2


# What importing a producer must not import: it would double the time until the first record.
LATE = [
    *("numpy", "asyncio", "pyarrow", "pyspark"),
    *("ssl", "hashlib", "hmac", "json", "pathlib", "difflib", "concurrent.futures"),
    *("lz4", "zstandard", "cramjam", "isal"),
    *(f"kafkaprod.{name}" for name in ("admin", "aio", "results.block", "broker", "cli", "loader", "spark", "tables")),
]


def test_importing_a_producer_leaves_out_what_single_records_do_not_need() -> None:
    script = f"import sys; from kafkaprod import Producer; print(*[name for name in {LATE} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_importing_a_producer_imports_only_the_messages_that_it_declares_with() -> None:
    """A message's class builds its encoders when it is made: half a hundred of them took longer than all else."""
    script = """
import sys
from kafkaprod import Producer
print(*[name for name in sys.modules if name.startswith("kafkaprod.protocol.messages.")])
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    messages = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert messages <= {
        *("api_versions", "init_producer_id", "metadata", "produce", "sasl_authenticate", "sasl_handshake"),
        *("get_telemetry_subscriptions", "push_telemetry"),  # the sender thread, which uses them, must not import
    }
