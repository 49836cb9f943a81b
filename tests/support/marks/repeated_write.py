"""A process that makes a write with a write_id, and kills itself before or behind one of its steps.

    python -m tests.support.marks.repeated_write SERVERS TOPIC WRITE_ID SHAPE ROWS STEP [PREFIX]

SHAPE is how the rows are sent: table, list, columns, block, asyncio or parts. STEP is `before:NAME` or `behind:NAME`
of a call in STEPS, or `none`. Rows are the texts of numbers, behind a prefix. What became of the write is printed:
`wrote N` or `already N`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from kafkaprod import AsyncProducer, Producer
from kafkaprod.marks import looks
from kafkaprod.marks.write import WriteTry

STEPS: dict[str, tuple[Any, str]] = {
    "open": (WriteTry, "open"),
    "fence": (Producer, "init_transactions"),
    "look": (looks, "read_mark"),
    "begin": (Producer, "begin_transaction"),
    "flush": (Producer, "flush"),
    "mark": (Producer, "send_offsets_to_transaction"),
    "guard": (looks, "offsets_before"),
    "commit": (Producer, "commit_transaction"),
    "report": (WriteTry, "close"),
}
KILLS = [f"{side}:{name}" for name in STEPS for side in ("before", "behind")]
SHAPES = ("table", "list", "columns", "block", "asyncio")


def plant(step: str) -> None:
    """Have the process killed at a step."""
    side, _, name = step.partition(":")
    if side == "none":
        return
    owner, attribute = STEPS[name]
    original: Callable[..., Any] = getattr(owner, attribute)

    def dying(*arguments: Any, **options: Any) -> Any:
        if side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, attribute, dying)


def write(servers: str, topic: str, write_id: str, shape: str, rows: int, prefix: str = "") -> Any:
    """Make the write; return its WriteResult."""
    values = [f"{prefix}{row}".encode() for row in range(rows)]
    if shape == "asyncio":
        return asyncio.run(_write_async(servers, topic, write_id, values))
    with Producer(bootstrap_servers=servers, linger_ms=0, batch_size=2_000) as producer:
        if shape == "block":
            with producer.transaction(write_id=write_id) as tx:
                for value in values:
                    tx.send(topic, value, key=value)
            return tx.result
        if shape == "parts":
            with producer.transaction(write_id=write_id, parts=max(rows // 5, 1)) as tx:
                for value in values:
                    tx.send(topic, value, key=value)
            return tx.result
        if shape == "table":
            data = {"value": values, "key": values}
            return producer.send_table(topic, data, key="key", write_id=write_id).write
        if shape == "columns":
            width = 8 + len(prefix)
            fixed = b"".join(value.ljust(width) for value in values)
            offsets = memoryview(b"".join((row * width).to_bytes(4, "little") for row in range(rows + 1))).cast("i")
            return producer.send_columns(topic, (offsets, fixed), write_id=write_id).write
        return producer.send_many(topic, values, values, write_id=write_id).write


async def _write_async(servers: str, topic: str, write_id: str, values: list[bytes]) -> Any:
    async with AsyncProducer(bootstrap_servers=servers, linger_ms=0, batch_size=2_000) as producer:
        return (await producer.send_many(topic, values, values, write_id=write_id)).write


def main() -> None:
    """See the module."""
    servers, topic, write_id, shape, rows, step, *prefix = sys.argv[1:]
    plant(step)
    outcome = write(servers, topic, write_id, shape, int(rows), *prefix)
    print("already" if outcome.already_written else "wrote", outcome.rows)


if __name__ == "__main__":
    main()
