"""kill -9 during loads of objects whose server has bad days: `python -m tests.campaigns.remote_kill --kills 24`.

Each load has an object of its own, at an address of HTTP or of S3, in one of four formats. Its server answers slowly,
cuts connections, and is busy at times. The load is killed again and again and continued, until it gets through. Between
kills the object is replaced at random by another one, which must be refused, and put back. Every row has the name of
its object in it. Then an independent client reads the topic: every row once, and none of another object.

Exit status 1 if a row is lost, twice or foreign, or a replaced object was not refused.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import random
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.loader.load_rig import LoadRig
from tests.support.loader.object_server import ObjectServer, cut, object_server, status

ROW_COUNT: Final = 40_000
FORMATS: Final = ("jsonl", "jsonl.gz", "parquet", "avro")
PLACES: Final = ("http", "s3")
LONGEST_S: Final = 4.0  # of a run that is killed
PATIENCE_S: Final = 120.0


@dataclass
class RemoteTally:
    """What happened."""

    loads: int = 0
    kills: int = 0
    kills_inside: int = 0  # when some rows, but not all, were there
    faults: int = 0
    changes: int = 0
    refused_changes: int = 0
    rows: int = 0
    lost: int = 0
    twice: int = 0
    foreign: int = 0

    @property
    def is_good(self) -> bool:
        """Whether every row was there once, and no other object's."""
        return not (self.lost or self.twice or self.foreign) and self.changes == self.refused_changes


def content_of(kind: str, name: str) -> bytes:
    """An object whose rows name it."""
    rows = [{"row": number, "object": name} for number in range(ROW_COUNT)]
    out = io.BytesIO()
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), out, row_group_size=4000)
        return out.getvalue()
    if kind == "avro":
        fields = [{"name": "row", "type": "int"}, {"name": "object", "type": "string"}]
        fastavro.writer(out, {"type": "record", "name": "row", "fields": fields}, rows, sync_interval=20_000)
        return out.getvalue()
    text = b"".join(b'{"row":%d,"object":"%s"}\n' % (number, name.encode()) for number in range(ROW_COUNT))
    return gzip.compress(text) if kind.endswith("gz") else text


def add_faults(server: ObjectServer, rng: random.Random, tally: RemoteTally) -> None:
    """Have the server cut an eighth of its answers, and be busy for another."""

    def spoil(asked: Any, reply: Any) -> None:
        chance = rng.random()
        if chance < 0.25 and reply.status == 206:
            tally.faults += 1
            (cut(rng.randrange(len(reply.body))) if chance < 0.125 else status(503, Retry_After="0"))(asked, reply)

    server.faults.append(spoil)


def run_one(server: ObjectServer, rig: LoadRig, place: str, kind: str, rng: random.Random, tally: RemoteTally) -> None:
    """Kill and resume one load until it gets through, then compare."""
    path = f"/bucket/{rig.topic}.{kind}"
    good, other = content_of(kind, "good"), content_of(kind, "evil")
    server.objects[path] = good
    address = server.url(path) if place == "http" else f"s3:/{path}"
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        **{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1"},
    }
    command = [*rig.command(address), "--resume", "--rate", "50000", "--checkpoint-interval", "0.05"]
    rig.create(3)
    while True:
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        try:
            _, errors = process.communicate(timeout=rng.uniform(0.5, LONGEST_S))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        tally.kills += 1
        count = len(rig.values())
        tally.kills_inside += 0 < count < ROW_COUNT
        if rng.random() < 0.4 and 0 < count < ROW_COUNT:
            tally.changes += 1
            server.objects[path] = other
            done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE_S, check=False)
            tally.refused_changes += done.returncode in (1, 2)
            server.objects[path] = good
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}: {errors.decode()}")
    found = Counter(rig.values())
    wanted = {b'{"row":%d,"object":"good"}' % number for number in range(ROW_COUNT)}
    tally.loads += 1
    tally.rows += len(found)
    tally.lost += len(wanted - found.keys())
    tally.foreign += sum(count for value, count in found.items() if value not in wanted)
    tally.twice += sum(count - 1 for value, count in found.items() if value in wanted)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=24, help="at least so many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first format and place, of 8")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    tally = RemoteTally()
    with EmbeddedBroker() as broker, object_server(delay_s=0.01) as server, tempfile.TemporaryDirectory() as directory:
        add_faults(server, rng, tally)
        while tally.kills < options.kills or tally.loads + options.first < len(FORMATS) * len(PLACES):
            number = tally.loads + options.first
            place, kind = PLACES[number % 2], FORMATS[number // 2 % 4]
            name = f"remote-{uuid.uuid4().hex[:12]}"
            identity = name if number % 3 == 2 else None  # every third in transactions
            rig = LoadRig(broker.bootstrap_servers, Path(directory), name, identity)
            run_one(server, rig, place, kind, rng, tally)
            print(f"{place} {kind}{' in transactions' if identity else ''}: {tally}", flush=True)
    print(f"seed {options.seed}: {tally}; {'good' if tally.is_good else 'BAD'}")
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
