"""Give damaged inputs to all that reads what strangers wrote: `python -m tests.fuzz.inputs KIND --count N --seed S`.

| kind       | inputs                                                                                                 |
|------------|--------------------------------------------------------------------------------------------------------|
| `messages` | requests and answers of every version, batches of records, the compiled answers of Produce, connections |
| `files`    | CSV, JSON, lines, Arrow, Parquet, ORC and Avro behind every codec, read as a load does                 |
| `texts`    | properties, JAAS, options, manifests, Avro schemas, and rows for the compiled splitters                |
| `requests` | whole requests of values at the ends of their types, to an embedded broker's handlers                  |

Each is taken from a whole one, changed, and read or refused. A crash, an exception that no caller could expect or more
than `MOST_CPU_S` of CPU time ends the run with status 1. Input i depends on the seed and i only: `--first i --count 1`.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import logging
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkaprod._core.text.csv_splitter import split_csv
from kafkaprod._core.text.row_splitter import find_fields, split_documents, split_elements, split_lines
from kafkaprod.config import ProducerConfig
from kafkaprod.config.jaas import parse_jaas
from kafkaprod.config.properties import parse_properties
from kafkaprod.errors import CorruptDataError, KafkaError
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.positions.manifest import Manifest
from kafkaprod.tables.row_plan import RowPlan
from tests.fuzz import response_targets
from tests.fuzz.targets import read_batch
from tests.support.net.protocol_samples import ALL_VERSIONS, samples

if TYPE_CHECKING:
    from tests.support.loader.damage import Sample

MOST_CPU_S: Final = 5.0
"""Of one input; the sanitizers make everything slower."""
PLAIN: Final = ReadOptions(RowPlan(""))
CORPUS: Final = Path(__file__).parent / "corpus"
MEMORY: Final = Path("/dev/shm")
"""For the files: on a disk half of the time of an input is that of making its file."""
_TEXTS: Final = (
    b"bootstrap.servers=a:1,b:2\nlinger.ms = 5\nsasl.password=x\\\n  y\\u00e4\n! comment\n",
    b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\\"c";',
    b"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId='a' scope=\"b c\" ;",
    b'{"version": 1, "sources": [{"path": "/a", "rows": 5}], "done": [[0, 5, "x"]], "options": {}}',
    b'{"type": "record", "name": "r", "fields": [{"name": "n", "type": ["null", "long"]}]}',
    b'id,name\n1,"a, ""b"""\n2,\r\n3,"c\nd"\n',
    b'[{"k": "v", "n": [1, {"x": "\\""}]},\n {"k": 2e5}]\n',
    b'{"orders": {"0": 5, "1": -1}}',
    b"[" * 5000,
    b'{"type":' * 5000,
)

Check = Callable[[random.Random], str]
"""Makes one input, and gives it to what reads it; the name of that. Raises what no caller could expect."""


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The data with bytes changed, cut out, put in, or repeated."""
    changed = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 2, 3, 8])):
        at = rng.randrange(len(changed) + 1)
        size = rng.choice([1, 1, 2, 4, 8, 64])
        how = rng.randrange(6)
        if how == 0:
            changed[at : at + size] = rng.randbytes(size)
        elif how == 1:
            del changed[at : at + size]
        elif how == 2:
            changed[at:at] = changed[at : at + size] * rng.choice([1, 2, 50])
        elif how == 3:
            changed[at : at + size] = bytes([rng.choice([0, 0xFF, 0x7F, 0x80, 1])]) * size
        elif how == 4 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        else:
            changed[at : at + size] = rng.choice([b'"', b"\\", b"\n", b"{", b"[[[[", b"=", b"\xed\xa0\x80", b"1e999"])
    return bytes(changed)


# -- messages ----------------------------------------------------------------------------------------------------------


class _Messages:
    def __init__(self) -> None:
        self._bodies: list[tuple[Any, int, bytes]] = []
        for message_class, version in ALL_VERSIONS:
            for sample in samples(message_class, version):
                with suppress(KafkaError, ValueError):  # a null where the version has none
                    self._bodies.append((message_class, version, bytes(sample.encode(version))))
        self._kept = {
            name: [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
            for name in ("read_batch", "settle_response", "receive_bytes")
        }
        self._targets = {
            "read_batch": read_batch,
            "settle_response": response_targets.settle_response,
            "receive_bytes": response_targets.receive_bytes,
        }

    def __call__(self, rng: random.Random) -> str:
        if rng.random() < 0.3:
            name = rng.choice(list(self._targets))
            self._targets[name](damaged(rng.choice(self._kept[name]), rng))
            return name
        message_class, version, body = rng.choice(self._bodies)
        try:
            message = message_class.decode(damaged(body, rng), version)
        except CorruptDataError:
            return "message refused"
        written = bytes(message.encode(version))  # compared as bytes: a number may be NaN, which equals nothing
        assert bytes(message_class.decode(written, version).encode(version)) == written
        return "message read"


# -- files and texts ---------------------------------------------------------------------------------------------------


class _Files:
    def __init__(self, directory: Path) -> None:
        from tests.support.loader.damage import samples as file_samples

        self._directory = directory
        self._samples = [(sample, b"".join(sample.streams)) for sample in file_samples() if sample.way == "file"]

    def __call__(self, rng: random.Random) -> str:
        sample, data = rng.choice(self._samples)
        options = PLAIN
        if rng.random() < 0.5 and sample.codec == "none":
            sample, data, options = _otherwise(sample, data, rng)
        rows = sample.rows(damaged(data, rng), self._directory, options)
        return f"{sample.format} {'refused' if isinstance(rows, str) else 'read'}"


def _otherwise(sample: Sample, data: bytes, rng: random.Random) -> tuple[Sample, bytes, ReadOptions]:
    """Read texts in another way: below other lines, as documents, or as the array in one."""
    if sample.format == "csv":
        above = b"".join(rng.choice([b"", b"sep=;\n", b"# of 2024\n", b'"\n', b"\r\n"]) for _ in range(3))
        comment = rng.choice(["", "#", "na", "\u00e9"])
        data = b"1,#\n# 2\n".join([above + data, data.replace(b",", b";")])
        return sample, data, replace(PLAIN, skip_lines=rng.choice([0, 0, 1, 3, 1 << 70]), comment=comment)
    if sample.format == "jsonl":
        return replace(sample, format="documents"), data.replace(b"\n", rng.choice([b"\n", b" ", b""])), PLAIN
    if sample.format == "json":
        before = rng.choice([b"{", b'{"x":[1,"]"],', b'{"x":{"features":[]},', b'{"features":null,'])
        whole = before + b'"features":' + data + rng.choice([b"}", b',"y":"}"}\n'])
        return sample, whole, replace(PLAIN, elements="features")
    return sample, data, PLAIN


def _options(text: str) -> None:
    ProducerConfig.from_options({"bootstrap.servers": "a:1"} | parse_properties(text))


def _jaas(text: str) -> None:
    ProducerConfig.from_options({"bootstrap.servers": "a:1", "sasl.jaas.config": text})
    parse_jaas(text)


def _rows(text: bytes, rng: random.Random) -> None:
    with suppress(ValueError):  # documented, of separators
        views, *_ = split_csv(text, rng.choice([44, 9, 59]), 34, rng.random() < 0.5, 1 << 20, 1000)
        find_fields(text, views, b"k")
    views, *_ = split_lines(text, 10, True, rng.random() < 0.5)
    find_fields(text, views, b"n")
    split_elements(text)
    split_documents(text)


_SPARK_TEXTS: Final = ["offsets"] if find_spec("pyspark") else []  # whose parser cannot be imported without PySpark


def _texts(rng: random.Random) -> str:
    data = damaged(rng.choice(_TEXTS), rng)
    text = data.decode("utf-8", "surrogateescape" if rng.random() < 0.2 else "replace")
    name = rng.choice(["properties", "jaas", "manifest", "avro", "rows", *_SPARK_TEXTS])
    with suppress(KafkaError):
        if name == "properties":
            _options(text)
        elif name == "jaas":
            _jaas(text)
        elif name == "manifest":
            with suppress(ValueError):  # documented
                Manifest.from_json(text)
        elif name == "avro":
            _avro(text)
        elif name == "rows":
            _rows(data, rng)
        else:
            _offsets(text)
    return name


def _avro(text: str) -> None:
    from kafkaprod import AvroRows

    AvroRows(schema=text, schema_id=1)


def _offsets(text: str) -> None:
    from kafkaprod.spark.reader_options import parse_reader_options

    parse_reader_options({"subscribe": "orders", "startingOffsets": text, "kafka.bootstrap.servers": "a:1"})


def _requests(directory: Path) -> Check:
    from tests.fuzz.extreme_requests import ExtremeRequests

    return ExtremeRequests(directory)


# -- runs --------------------------------------------------------------------------------------------------------------


def run(check: Check, seed: int, first: int, count: int) -> Iterator[tuple[str, str]]:
    """Yield the name of what read each input, and what was wrong, empty if nothing was."""
    for i in range(first, first + count):
        began_s = time.thread_time()
        try:
            name, wrong = check(random.Random(f"{seed}:{i}")), ""
        except Exception as error:
            name = type(error).__name__
            wrong = f"--seed {seed} --first {i} --count 1: {''.join(traceback.format_exception(error))}"
        if (used_s := time.thread_time() - began_s) > MOST_CPU_S:
            wrong = wrong or f"--seed {seed} --first {i} --count 1: {used_s:.1f} s of CPU"
        yield name, wrong


def fuzz(kind: str, seed: int, first: int, count: int) -> tuple[collections.Counter[str], list[str]]:
    """Give the inputs to what reads them; return how many each had, and what was wrong."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        checks: dict[str, Callable[[], Check]] = {
            "messages": _Messages,
            "files": lambda: _Files(Path(directory)),
            "texts": lambda: _texts,
            "requests": lambda: _requests(Path(directory)),
        }
        names: collections.Counter[str] = collections.Counter()
        found: list[str] = []
        for name, wrong in run(checks[kind](), seed, first, count):
            names[name] += 1
            found += [wrong] if wrong else []
    return names, found


def main() -> int:
    """Run as the command line says; 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.inputs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=["messages", "files", "texts", "requests"])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    names, found = fuzz(options.kind, options.seed, options.first, options.count)
    counts = ", ".join(f"{name} {count}" for name, count in names.most_common())
    print(f"{options.kind}, seed {options.seed}, {options.count} inputs from {options.first}: {counts}")
    print("\n".join(found[:20]) or "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
