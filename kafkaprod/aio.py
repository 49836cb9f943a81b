"""AsyncProducer: the producer's verbs for asyncio, on the same intake, engine and sender thread as `Producer`.

All waiting is done on the event loop, woken by the sender thread: a record that finds no memory waits in the same line
as those of threads, and one that is cancelled before it got there is not sent. Only blocks of records, which take long
to copy, have a thread each; it is a daemon, so that a program interrupted while they wait can end. An event loop is
woken once per batch, not once per record.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar, Unpack, cast, overload

import kafkaprod  # whose names of what is seldom used are loaded when type hints are looked at
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.config.option_types import OptionTypes
from kafkaprod.engine.engine import Engine
from kafkaprod.engine.host import EngineHost, Hosted, check_delivered, left_open, patience_after
from kafkaprod.engine.steps import Ending, Steps, run
from kafkaprod.engine.transaction_calls import TransactionCalls, note_abort, note_failed_abort
from kafkaprod.intake.blocks import BlockIntake
from kafkaprod.intake.records import Intake
from kafkaprod.metrics import Snapshot
from kafkaprod.producer import Producer, Verify, close_writers, start_writer
from kafkaprod.results.batch import DeliveryFuture, LoopBatchCompletion
from kafkaprod.structs import NodeHealth, RecordMetadata
from kafkaprod.text import plain_text

if TYPE_CHECKING:
    from kafkaprod._core.records.record_arguments import _Headers
    from kafkaprod.marks.async_block import AsyncWriteBlock
    from kafkaprod.marks.calls import WriteCalls
    from kafkaprod.marks.writers import KeptWriter
else:  # what looks at type hints finds a name
    _Headers = AsyncWriteBlock = Any

P = ParamSpec("P")
T = TypeVar("T")
AnyProducer = TypeVar("AnyProducer")

_SHORTAGE_S = 0.001
"""Before the next try to get memory."""


def _block_call(
    method: Callable[Concatenate[Producer, P], T],
) -> Callable[[Callable[..., Any]], Callable[Concatenate[AsyncProducer, P], Coroutine[Any, Any, T]]]:
    """Give an async method the signature of a Producer's, which runs in a thread of its own."""

    def decorate(named: Callable[..., Any]) -> Callable[Concatenate[AsyncProducer, P], Coroutine[Any, Any, T]]:
        @functools.wraps(method)
        async def call(self: AsyncProducer, /, *args: P.args, **kwargs: P.kwargs) -> T:
            options: dict[str, Any] = dict(kwargs)
            if options.get("write_id") is not None:
                writes = self._writes
                result: T = await _in_thread(lambda: writes.call(method.__name__, args, options))
                return result
            options.pop("write_id", None)
            options.pop("verify", None)
            steps: Callable[..., Steps[T]] = getattr(self._blocks, method.__name__)
            return await _in_thread(lambda: run(steps(*args, **options)))

        call.__doc__, call.__qualname__ = named.__doc__, named.__qualname__
        return call

    return decorate


class AsyncProducer(Hosted):
    """Sends records to Apache Kafka from asyncio.

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("orders", b"value")

    Options, errors and promises are those of `Producer`.
    """

    def __init__(
        self, config: Mapping[str, Any] | ProducerConfig | None = None, /, **options: Unpack[OptionTypes]
    ) -> None:
        self._engine = Engine(
            ProducerConfig.from_options(config, **options), SystemClock(), completion=LoopBatchCompletion
        )
        self._host = EngineHost(self._engine)
        self._intake = Intake(self._host)
        self._blocks = BlockIntake(self._intake, self._host)
        self._transaction_calls = TransactionCalls(self._host)
        self._kept_writers: list[KeptWriter] = []
        intake = self._intake
        self._path = RecordSender(self._engine.accumulator, intake.send_blocking, self._host.hooks, intake.send_hooked)
        self._host.start(self)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: _Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture:
        """Queue one record; await the returned future for its RecordMetadata. Arguments and errors as Producer.send.

        Waits, without blocking the event loop, for metadata and memory up to max_block_ms. Cancelled while it waits, it
        has queued nothing.
        """
        outcome = self._path.begin_send(topic, value, key, headers, partition, timestamp_ms)
        if isinstance(outcome, DeliveryFuture):
            return outcome
        return await self._finish_send(outcome, (topic, value, key, headers, partition, timestamp_ms))

    async def _finish_send(self, outcome: Any, record: tuple[Any, ...]) -> DeliveryFuture:
        """Send a record that the compiled path left to the general one."""
        call = self._intake.begin(record) if outcome is None else self._intake.resume(outcome)
        future = self._intake.attempt(call)
        return await _run(self._intake.finish(call, _TaskWaiter)) if future is None else future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: _Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record, as `send`, and wait for its outcome. Raises the record's own error."""
        outcome = self._path.begin_send(topic, value, key, headers, partition, timestamp_ms)
        if isinstance(outcome, DeliveryFuture):
            return await outcome
        return await (await self._finish_send(outcome, (topic, value, key, headers, partition, timestamp_ms)))

    @_block_call(Producer.send_many)
    async def send_many(self) -> None:
        """Producer.send_many; await the result for the outcome of all rows. Cancelled, it may queue them yet."""

    @_block_call(Producer.send_columns)
    async def send_columns(self) -> None:
        """Producer.send_columns; as `send_many`."""

    @_block_call(Producer.send_table)
    async def send_table(self) -> None:
        """Producer.send_table; as `send_many`."""

    @property
    def _writes(self) -> WriteCalls:
        self._host.check_usable()
        from kafkaprod.marks.calls import WriteCalls
        from kafkaprod.marks.writers import Writers

        return WriteCalls(self._blocks, Writers(self.config, start_writer, self._kept_writers, self._host))

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Producer.init_transactions without blocking the event loop. If cancelled, repeat it: it continues."""
        await _run(self._transaction_calls.init(timeout, _TaskWaiter))

    def begin_transaction(self) -> None:
        """Producer.begin_transaction; never waits."""
        self._transaction_calls.begin()

    async def send_offsets_to_transaction(
        self, offsets: Any, group_metadata: Any, timeout: float | None = None
    ) -> None:
        """Producer.send_offsets_to_transaction, as `init_transactions`."""
        await _run(self._transaction_calls.send_offsets(offsets, group_metadata, timeout, _TaskWaiter))

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Producer.commit_transaction, as `init_transactions`."""
        await _run(self._transaction_calls.commit(timeout, _TaskWaiter))

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Producer.abort_transaction, as `init_transactions`."""
        await _run(self._transaction_calls.abort(timeout, _TaskWaiter))

    @overload
    def transaction(self) -> AsyncTransaction[Self]: ...

    @overload
    def transaction(
        self, *, write_id: str, verify: Verify = "content", parts: int | bool = False
    ) -> AsyncWriteBlock: ...

    def transaction(
        self, *, write_id: str | None = None, verify: Verify = "content", parts: int | bool = False
    ) -> AsyncTransaction[Self] | AsyncWriteBlock:
        """Return the block of a transaction, for `async with`; see Producer.transaction."""
        if write_id is not None:
            from kafkaprod.marks.async_block import AsyncWriteBlock

            return AsyncWriteBlock(self._writes.block(write_id, verify, parts), _in_thread)
        return AsyncTransaction(self, self._transaction_calls)

    async def flush(self, timeout: float | None = None) -> None:
        """Producer.flush without blocking the event loop."""
        await _run(self._host.flush(timeout, _TaskWaiter))

    async def sync(self, timeout: float | None = None) -> None:
        """Producer.sync without blocking the event loop."""
        await _run(self._host.sync(timeout, _TaskWaiter))

    async def purge(self, *, in_queue: bool = True, in_flight: bool = True) -> int:
        """Producer.purge without blocking the event loop."""
        return await _run(self._host.purge(_TaskWaiter, in_queue=in_queue, in_flight=in_flight))

    async def close(self, timeout: float | None = None) -> None:
        """Producer.close without blocking the event loop."""
        try:
            await _run(self._host.close(timeout, _TaskWaiter))
        finally:
            if self._kept_writers:
                await _in_thread(lambda: close_writers(self._kept_writers))

    async def aclose(self) -> None:
        """Close as `close` does, for contextlib.aclosing()."""
        await self.close()

    async def start(self, timeout: float = 10.0) -> Self:
        """Raise what keeps this producer from the cluster, as Producer.check; return the producer.

        Not needed before the first record: it makes a wrong option show early.
        """
        self._host.check_usable()
        from kafkaprod.admin.cluster import check_cluster

        await _in_thread(lambda: check_cluster(self.config, timeout))
        return self

    async def list_topics(self, topics: list[str] | str | None = None, timeout: float = 10.0) -> kafkaprod.ClusterInfo:
        """Producer.list_topics without blocking the event loop."""
        self._host.check_usable()
        names = [plain_text(topics)] if isinstance(topics, str) else topics

        def describe() -> kafkaprod.ClusterInfo:
            from kafkaprod.admin.cluster import describe_cluster

            return describe_cluster(self.config, names, timeout)

        return await _in_thread(describe)

    async def partitions_for(self, topic: str) -> set[int]:
        """Producer.partitions_for without blocking the event loop."""
        return await _run(self._intake.partitions_for(topic, _TaskWaiter))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Producer.set_sasl_credentials; never waits."""
        self._host.check_usable()
        self._engine.set_credentials(username, password)

    @property
    def config(self) -> ProducerConfig:
        """The effective configuration."""
        return self._host.config

    def node_states(self) -> dict[int, NodeHealth]:
        """Producer.node_states()."""
        return self._engine.node_states()

    def metrics(self) -> Snapshot:
        """Producer.metrics()."""
        self._host.check_not_forked()
        return self._engine.snapshot()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._host.is_closed:
            try:
                await self.flush()
            except BaseException as failure:
                await self.close(patience_after(failure))
                raise
        is_left_open = kind is None and self._host.has_open_transaction
        await self.close(patience_after(error))
        check_delivered(self._engine, error)
        if is_left_open:
            raise left_open()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied, as it holds a thread and connections: "
            "make one in each process or task, for example from the same configuration"
        )


async def _run(steps: Steps[T]) -> T:
    """Run the steps of a call, waiting in the running event loop. Waiters must be `_TaskWaiter`s."""
    ending = Ending[T]()
    kept = ending.of(steps)
    try:
        step = next(kept, None)
        while step is not None:
            waiter, patience_s = step
            step = kept.send(await waiter.wait(patience_s))
    except (StopIteration, MemoryError):
        if not ending.is_reached:
            raise
    finally:
        if not ending.is_reached:
            kept.close()
    return ending.outcome


class AsyncTransaction(Generic[AnyProducer]):
    """The block of `async with producer.transaction()`, as `Transaction`.

    Args:
        producer: The value of `as`.
        calls: The transaction calls of the producer.
    """

    def __init__(self, producer: AnyProducer, calls: TransactionCalls) -> None:
        self._producer = producer
        self._calls = calls
        self._identity = calls.identity
        self._number = 0

    async def __aenter__(self) -> AnyProducer:
        self._calls.begin()
        self._number = self._identity.number
        return self._producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._calls.is_open(self._number):
            return
        if error is not None:
            await self._abort_after(error)
            return
        try:
            await _run(self._calls.commit(None, _TaskWaiter))
        except BaseException as failure:
            await self._abort_after(failure)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort, even if the task is cancelled once more; bounded by max_block_ms."""
        if not self._calls.is_open(self._number):
            return
        try:
            await asyncio.shield(self._abort())
        except Exception as failure:
            note_failed_abort(error, failure)
        else:
            note_abort(error)

    async def _abort(self) -> None:
        await _run(self._calls.abort(None, _TaskWaiter))


class _TaskWaiter:
    """A task's wait for something another thread does. A wake that comes first is not lost."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Make the current or next `wait` return True. Never blocks; thread-safe."""
        with contextlib.suppress(RuntimeError):  # the loop was closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._event.set)

    __call__ = wake

    def start_with(self, start: Callable[[], None]) -> None:
        """Call `start`, which wakes the thread to wait for: the loop may run other tasks before the wait begins."""
        start()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for `wake`, at most `timeout` seconds; return whether it came. Uses it up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # not wait_for(): until 3.12 it could lose a cancellation
                await self._event.wait()
        is_woken = self._event.is_set()
        self._event.clear()
        return is_woken


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a call that may wait in a daemon thread.

    Not in the loop's executor: it has few threads, which others need, and a program cannot end while one of them waits.
    Not by `Thread.start()`: it waits for the thread to begin, for ever if that finds no memory, and blocks the loop.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    threaded = _ThreadedCall(call, loop, future)
    try:
        _thread.start_new_thread(threaded, ())
    except BaseException:
        threaded.is_over = True
        raise
    del threaded  # it must go with its thread
    return await future


class _ThreadedCall(Generic[T]):
    """A call in a thread of its own. Its outcome reaches the event loop even if no memory is left for a while.

    Attributes:
        is_over: There is an outcome, or the thread did not begin and its starter knows.
    """

    def __init__(self, call: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
        self._call = call
        self._loop = loop
        self._future = future
        self._result: T | None = None
        self._error: BaseException | None = None
        self.is_over = False

    def __call__(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        self._end()

    def __del__(self) -> None:
        if not self.is_over:  # the thread found no memory to begin
            self._error = MemoryError("no memory for the thread of the call")
            self._end()

    def _end(self) -> None:
        self.is_over = True
        while True:
            try:
                self._loop.call_soon_threadsafe(self._settle)
            except MemoryError:
                time.sleep(_SHORTAGE_S)
            except RuntimeError:  # the loop was closed
                return
            else:
                return

    def _settle(self) -> None:
        error, self._error = self._error, None  # which refers to this object by its frames
        if self._future.done():  # the task was cancelled
            return
        if error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(cast(T, self._result))
