"""How a Python client is driven: warm-up, measured rounds on one or more threads, or an even pace for latencies."""

import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from benchmarks.peers.task import Figures, Records, Task, read_records

# Pause of a paced run from a thousand records a second on.
_PACE_S = 0.001


class Client(Protocol):
    """What a Python client program provides."""

    version: str
    settings: dict[str, Any]

    def send_round(self) -> None:
        """Send all records of the task once; return when the client has taken them."""

    def send_one(self, index: int, on_done: Callable[[], None] | None) -> None:
        """Send record ``index`` (modulo their number); ``on_done`` is called when it is acknowledged."""

    def idle(self, seconds: float) -> None:
        """Pass so much time, or less: sleep, or what the client's documentation asks for, such as poll()."""

    def flush(self) -> None:
        """Return when every record sent has its outcome; raise if one failed."""


@runtime_checkable
class TransactionalClient(Protocol):
    """What a client with transactions has besides."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit it."""


def main(make_client: Callable[[Task, Records], Client]) -> None:
    """Body of a client program: read the task, run it, print the figures."""
    task = Task.from_arguments(sys.argv[1:])
    records = read_records(task.records)
    client = make_client(task, records)
    print((_paced if task.rate else _at_full_speed)(task, client, len(records.values)).to_json())


def _at_full_speed(task: Task, client: Client, round_records: int) -> Figures:
    warm_up_rounds = _rounds(task, client, task.warm_up_s)
    started, cpu = time.perf_counter(), time.process_time()
    rounds = _rounds(task, client, task.seconds)
    figures = _figures(client, rounds * round_records, warm_up_rounds * round_records, started, cpu)
    figures.transactions = (rounds + warm_up_rounds) * task.transactional
    return figures


def _rounds(task: Task, client: Client, seconds: float) -> int:
    """Send whole rounds from each thread until the time has passed; flush; return how many there were."""
    end = time.perf_counter() + seconds
    counts = [0] * task.threads
    errors: list[BaseException] = []
    transactions = client if task.transactional and isinstance(client, TransactionalClient) else None
    assert not task.transactional or transactions is not None, "this client has no transactions"

    def send(thread: int) -> None:
        try:
            while not counts[thread] or time.perf_counter() < end:
                if transactions is not None:
                    transactions.begin()
                client.send_round()
                if transactions is not None:
                    transactions.commit()
                if task.flush_rounds:
                    client.flush()
                counts[thread] += 1
        except BaseException as error:
            errors.append(error)

    others = [threading.Thread(target=send, args=(index,)) for index in range(1, task.threads)]
    for thread in others:
        thread.start()
    send(0)
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
    client.flush()
    return sum(counts)


def _paced(task: Task, client: Client, _: int) -> Figures:
    """Latency counts from the time a record was to be sent: a client that holds its caller up does not escape."""
    warm_up_records = max(1, int(task.rate * task.warm_up_s))
    _pace(task, client, warm_up_records, [])
    client.flush()
    latencies: list[int] = []
    gc.collect()
    gc.freeze()  # what is here already is not looked at again by collections during the run
    started, cpu = time.perf_counter(), time.process_time()
    count = max(1, int(task.rate * task.seconds))
    _pace(task, client, count, latencies)
    client.flush()
    figures = _figures(client, count, warm_up_records, started, cpu)
    figures.latencies_us = latencies
    return figures


def _pace(task: Task, client: Client, count: int, latencies: list[int]) -> None:
    send_one, idle, now = client.send_one, client.idle, time.perf_counter
    rate, sample_every = task.rate, task.sample_every

    def sampled(due: float) -> Callable[[], None]:
        return lambda: latencies.append(int((now() - due) * 1e6))

    started = now()
    sent = 0
    while sent < count:
        due_count = min(count, int((now() - started) * rate) + 1)
        while sent < due_count:
            send_one(sent, None if sent % sample_every else sampled(started + sent / rate))
            sent += 1
        pause = started + sent / rate - now()
        idle(max(pause, _PACE_S) if rate * _PACE_S >= 1 else max(pause, 0))


def _figures(client: Client, records: int, warm_up_records: int, started: float, cpu: float) -> Figures:
    return Figures(
        records=records,
        all_records=records + warm_up_records,
        seconds=time.perf_counter() - started,
        cpu_s=time.process_time() - cpu,
        max_rss_mb=max_rss_mb(),
        version=client.version,
        settings=client.settings,
    )


def max_rss_mb() -> float:
    """Largest resident set of this process; getrusage() would also count the process it was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
