"""What AsyncProducer returns is a future for asyncio: wait() in all forms, callbacks in the loop, debug mode."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker import EmbeddedBroker

BOUND_S = 20
RECORDS = 3
REFUSED = b"x" * 3000
"""More than the topic takes."""

Program = Callable[[AsyncProducer], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1, "small": 1}, options={"message.max.bytes": 2000}) as broker:
        yield broker


@pytest.fixture(params=["asyncio", "debug"])
def run(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Callable[[Program], None]:
    async def with_producer(program: Program) -> None:
        async with asyncio.timeout(BOUND_S), AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.start()
            await program(producer)

    def run(program: Program) -> None:
        with asyncio.Runner(debug=request.param == "debug") as runner:
            runner.run(with_producer(program))

    return run


async def some(producer: AsyncProducer) -> list[Any]:
    return [await producer.send("t", b"x") for _ in range(RECORDS)]


async def rows(producer: AsyncProducer) -> list[Any]:
    return [await producer.send_many("t", [b"a", b"b"]) for _ in range(RECORDS)]


@pytest.mark.parametrize("send", [some, rows])
def test_wait_returns_all_that_is_done(run: Callable[[Program], None], send: Callable[..., Any]) -> None:
    async def program(producer: AsyncProducer) -> None:
        futures = await send(producer)
        done, pending = await asyncio.wait(futures)
        assert done == set(futures)
        assert not pending
        assert all(future.done() and future.exception() is None for future in futures)
        assert await asyncio.wait(futures) == (set(futures), set())  # of those whose outcome is known
        done, pending = await asyncio.wait(await send(producer), timeout=BOUND_S)
        assert (len(done), len(pending)) == (RECORDS, 0)
        waiting = set(await send(producer))
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert done

    run(program)


@pytest.mark.parametrize("send", [some, rows])
def test_wait_ends_at_its_timeout(broker: EmbeddedBroker, send: Callable[..., Any]) -> None:
    async def program() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=2000) as producer:
            await producer.start()
            futures = await send(producer)
            done, pending = await asyncio.wait(futures, timeout=0.01)
            assert (done, pending) == (set(), set(futures))
            assert not any(future.cancel() or future.cancelled() for future in pending)
            assert [future.remove_done_callback(print) for future in futures] == [0] * RECORDS
            await producer.flush()
            assert all(future.done() for future in futures)

    asyncio.run(program())


def test_wait_ends_at_the_first_exception(run: Callable[[Program], None]) -> None:
    async def program(producer: AsyncProducer) -> None:
        refused: list[Any] = [await producer.send("small", REFUSED), await producer.send_many("small", [REFUSED])]
        for each in refused:
            done, _ = await asyncio.wait({each}, return_when=asyncio.FIRST_EXCEPTION)
            assert done == {each}
            assert each.exception() is not None

    run(program)


def test_other_ways_to_wait_work_as_with_an_own_future(run: Callable[[Program], None]) -> None:
    async def program(producer: AsyncProducer) -> None:
        assert len(await asyncio.gather(*await some(producer))) == RECORDS
        assert [(await each).topic for each in asyncio.as_completed(await some(producer))] == ["t"] * RECORDS
        first, second, third = await some(producer)
        assert (await asyncio.wait_for(first, BOUND_S)).topic == "t"
        assert (await asyncio.shield(second)).topic == "t"
        assert (await asyncio.ensure_future(third)).topic == "t"
        assert (await asyncio.create_task(producer.send_and_wait("t", b"x"))).topic == "t"
        own: Any = asyncio.get_running_loop().create_future()
        for future in (*await some(producer), own):
            with pytest.raises(TypeError, match="coroutine"):
                asyncio.get_running_loop().create_task(future)

    run(program)


@pytest.mark.parametrize("send", [some, rows])
def test_callbacks_run_in_the_loop_and_context_that_added_them(
    run: Callable[[Program], None], send: Callable[..., Any]
) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

    async def program(producer: AsyncProducer) -> None:
        name.set("task")
        given = contextvars.copy_context()
        given.run(name.set, "given")
        here = threading.get_ident()
        calls: list[tuple[bool, str]] = []

        def add(future: Any, **options: Any) -> asyncio.Future[None]:
            wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def note(done: Any) -> None:
                calls.append((threading.get_ident() == here and done is future and done.done(), name.get()))
                wait.set_result(None)

            future.add_done_callback(note, **options)
            return wait

        future, _, _ = await send(producer)
        await asyncio.gather(add(future), add(future, context=given))
        assert calls == [(True, "task"), (True, "given")]
        wait = add(future)
        assert len(calls) == 2  # the loop calls it soon, not now
        await wait
        assert len(calls) == 3

    run(program)


@pytest.mark.parametrize("send", [some, rows])
def test_removed_callback_is_not_called(broker: EmbeddedBroker, send: Callable[..., Any]) -> None:
    async def program() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=2000) as producer:
            await producer.start()
            calls: list[object] = []
            for future in await send(producer):
                future.add_done_callback(calls.append)
                future.add_done_callback(calls.append)
                assert future.remove_done_callback(calls.append) == 2
                assert future.remove_done_callback(calls.append) == 0
            kept = await producer.send("t", b"x")
            kept.add_done_callback(calls.append)
            await producer.flush()
            assert calls == [kept]

    asyncio.run(program())


def test_callback_that_raises_is_logged_and_others_run(
    run: Callable[[Program], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def program(producer: AsyncProducer) -> None:
        future = await producer.send("t", b"x")
        calls: list[object] = []
        future.add_done_callback(lambda _: 1 / 0)
        future.add_done_callback(calls.append)
        await producer.flush()
        assert calls == [future]

    with caplog.at_level(logging.ERROR, "kafkaprod"):
        run(program)
    assert "a delivery callback for t[0] raised" in caplog.text


def test_callbacks_of_a_batch_that_is_split_are_called_once(broker: EmbeddedBroker) -> None:
    async def program() -> None:
        options: dict[str, Any] = {"linger_ms": 2000, "batch_size": 1 << 20}
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
            await producer.start()
            calls: list[object] = []
            futures = [await producer.send("small", b"x" * 600) for _ in range(20)]
            for future in futures:
                future.add_done_callback(calls.append)
            await producer.flush()
            assert sorted(map(id, calls)) == sorted(map(id, futures))
            assert all(future.succeeded() for future in futures)

    asyncio.run(program())


def test_callbacks_without_a_loop_run_on_the_sender_thread(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=2000) as producer:
        names: list[str] = []

        async def add() -> None:  # a loop that waits in flush() must not be waited for
            for each in (producer.send("t", b"x"), producer.send_many("t", [b"x"])):
                each.add_done_callback(lambda _: names.append(threading.current_thread().name))
            producer.flush()

        asyncio.run(add())
        assert len(names) == 2
        assert all(name.startswith("kafkaprod") for name in names)
        removed: Any = producer.send("t", b"x")
        removed.add_done_callback(names.append)
        assert removed.remove_done_callback(names.append) == 1
        producer.flush()
        assert len(names) == 2
