"""kill -9 at random instants of a load, resume, compare.

With --transactions the loads are transactional, and only committed records count. Each load has a topic of its own.
It is killed again and again until it gets through; then an independent client reads the topic: every line once, in its
partition in the order of the file. After each kill the manifest, or the committed position, must be readable.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkaprod.admin.client import ClusterClient
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import ProducerConfig
from kafkaprod.loader.committed_position import CommittedPosition
from kafkaprod.loader.manifest_file import ManifestFile
from kafkaprod.loader.transactional import find_position
from tests.kafka.cluster import KafkaCluster
from tests.support.loader.load_rig import LoadRig

PARTITIONS = 5


@dataclass
class Tally:
    """What happened."""

    loads: int = 0
    kills: int = 0
    kills_with_manifest: int = 0
    resumed_inside: int = 0  # killed when some records, but not all, were acknowledged
    lost: int = 0
    twice: int = 0
    misplaced: int = 0

    @property
    def is_good(self) -> bool:
        """Whether every line of every load was where it belongs, once."""
        return not (self.lost or self.twice or self.misplaced)


def write_lines(path: Path, count: int) -> None:
    """A file of numbered lines of different lengths."""
    rng = random.Random(count)
    path.write_bytes(b"".join(b'{"id":%d,"pad":"%s"}\n' % (i, b"x" * rng.randrange(120)) for i in range(count)))


def kill_until_through(rig: LoadRig, path: Path, rng: random.Random, longest_s: float, tally: Tally) -> None:
    """One load of `path`, killed at random instants and resumed until it ends by itself; then compared."""
    line_rate = 400_000
    keyed = ("--key", "id") if rng.random() < 0.5 else ()
    arguments = [str(path), "--create-topic", str(PARTITIONS), "--checkpoint-interval", "0.03", "--resume", *keyed]
    if rig.transactional_id is not None:
        arguments += ["--rate", str(line_rate)]  # commits in the middle of blocks, too
    while True:
        process = subprocess.Popen(rig.command(*arguments), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        if rng.random() < 0.9:  # the others die at any time, also before they have done anything
            await_manifest(rig, process)
        try:
            _, error = process.communicate(timeout=rng.uniform(0.0, longest_s))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            tally.kills += 1
        else:
            assert process.returncode == 0, error.decode()
            break
        for sent_count, is_done in positions(rig):
            tally.kills_with_manifest += 1
            tally.resumed_inside += sent_count > 0 and not is_done
    tally.loads += 1
    compare(rig, path, bool(keyed), tally)


def positions(rig: LoadRig) -> Iterator[tuple[int, bool]]:
    """How many rows are in the manifest or committed, and whether that is all; raises if it cannot be read."""
    if rig.transactional_id is not None:
        committed = position_of(rig)
        if committed is not None:
            yield committed.sent_count, bool(committed.done_at)
        return
    for file in rig.state_dir.glob("*.load.json"):
        manifest = ManifestFile(file).read()
        assert manifest is not None
        yield manifest.sent_count, manifest.is_done


def position_of(rig: LoadRig) -> CommittedPosition | None:
    """What a transactional load has committed."""
    assert rig.transactional_id is not None
    with ClusterClient(ProducerConfig.from_options({"bootstrap_servers": rig.bootstrap})) as client:
        return find_position(client, rig.transactional_id, rig.topic)


def await_manifest(rig: LoadRig, process: subprocess.Popen[bytes]) -> None:
    """Return when the process has written a manifest or a committed position, or has ended."""
    before = progress_of(rig)
    while process.poll() is None and progress_of(rig) == before:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)


def progress_of(rig: LoadRig) -> list[int]:
    """When the manifests were written, or the rank of the committed position."""
    if rig.transactional_id is not None:
        committed = position_of(rig)
        return [] if committed is None else [committed.rank]
    return [file.stat().st_mtime_ns for file in sorted(rig.state_dir.glob("*.load.json"))]


def compare(rig: LoadRig, path: Path, is_keyed: bool, tally: Tally) -> None:
    """Count what is lost, double, or out of order."""
    lines = path.read_bytes().splitlines()
    place = {line: i for i, line in enumerate(lines)}
    seen = [0] * len(lines)
    for records in rig.read().values():
        last = -1
        for record in records:
            at = place[record.value or b""]
            seen[at] += 1
            tally.misplaced += at <= last
            last = at
            if is_keyed:
                tally.misplaced += record.key != b"%d" % at
    tally.lost += seen.count(0)
    tally.twice += sum(count > 1 for count in seen)


@contextlib.contextmanager
def broker(kind: str) -> Iterator[str]:
    """Bootstrap servers of an embedded broker, or of Apache Kafka."""
    if kind == "embedded":
        with EmbeddedBroker() as embedded:
            yield embedded.bootstrap_servers
        return
    with contextlib.closing(KafkaCluster(1)) as cluster:
        cluster.start()
        yield cluster.bootstrap()


def kill_loads(
    bootstrap: str,
    directory: Path,
    kills: int,
    line_count: int,
    longest_s: float,
    seed: int,
    *,
    has_transactions: bool = False,
) -> Tally:
    """Kill loads until there were `kills` of it, and the last one is through."""
    rng = random.Random(seed)
    path = directory / "lines.jsonl"
    write_lines(path, line_count)
    tally = Tally()
    while tally.kills < kills:
        topic = f"kill-{uuid.uuid4().hex[:8]}"
        state, transactional_id = directory / f"state-{tally.loads}", f"load-of-{topic}" if has_transactions else None
        rig = LoadRig(bootstrap, state, topic, transactional_id)
        kill_until_through(rig, path, rng, longest_s, tally)
        assert tally.is_good, tally
        print(tally, flush=True)
    return tally


def main() -> None:
    """Run as the arguments say and print the tally."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.load_kill", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--broker", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--lines", type=int, default=600_000)
    parser.add_argument("--longest-s", type=float, default=0.6, help="latest instant of a kill after a manifest")
    parser.add_argument("--transactions", action="store_true", help="loads with --transactional-id")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with broker(options.broker) as bootstrap, tempfile.TemporaryDirectory() as directory:
        started = time.monotonic()
        sizes = options.kills, options.lines, options.longest_s, options.seed
        tally = kill_loads(bootstrap, Path(directory), *sizes, has_transactions=options.transactions)
        print(f"{tally} in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
