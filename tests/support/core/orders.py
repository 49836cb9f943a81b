"""An explorer of short programs of several threads: every order that a processor may give their loads and stores.

No run on real processors shows that an order is impossible; this walks all of them. Two machines:

    tso: stores wait in a buffer and reach memory in order (x86-64)
    weak: they reach memory in any order over addresses, a published one after those before it; and a load may be
        answered earlier than its place, but not before an observe that stands in front of it

The second is a small model of aarch64: locks and exchanges wait there for the stores in front of them, which the
processor does not ask, and no load is taken before a branch. What it finds is there; it does not find all that is.

A step is a tuple, its kind first:

    store, publish   name, value          bump        name, number: store what was read of it, and so much more
    load, observe    name                 fence
    swap             name, value          add         name, number; then read is the sum
    add_read         name, other, number: add what was read of another, and so much more
    lock             name, value: wait until it is 0
    until            name, value: wait until it is that
    park             name: it becomes 1 if `held` and `awaited` are 1, as a futex compares them
    fork             all other threads end where they are, as in a child process
    if               name, value, steps to skip if another was read; jump: steps to skip; see `assembled`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

TSO, WEAK = "tso", "weak"

Memory = tuple[tuple[str, int], ...]
Step = tuple[str | int, ...]
Programs = tuple[tuple[Step, ...], ...]
FOREVER = 1 << 30


class Thread(NamedTuple):
    """Where a thread is, what it has read, its stores that are not in memory yet, and the loads it answered early."""

    at: int
    read: Memory
    stores: tuple[tuple[str, int, bool], ...]
    past: Memory


class State(NamedTuple):
    memory: Memory
    threads: tuple[Thread, ...]


def changed(pairs: Memory, name: str, value: int) -> Memory:
    return tuple(sorted({**dict(pairs), name: value}.items()))


def replaced(state: State, index: int, thread: Thread, memory: Memory | None = None) -> State:
    threads = (*state.threads[:index], thread, *state.threads[index + 1 :])
    return State(state.memory if memory is None else memory, threads)


def drained(state: State, index: int, machine: str) -> Iterator[State]:
    """Each state in which one more store of the thread has reached memory."""
    thread = state.threads[index]
    for i, (name, value, is_published) in enumerate(thread.stores):
        earlier = thread.stores[:i]
        if i > 0 and (machine == TSO or is_published or any(name == other for other, _, _ in earlier)):
            continue
        rest = thread._replace(stores=(*earlier, *thread.stores[i + 1 :]))
        yield replaced(state, index, rest, changed(state.memory, name, value))


def looked_ahead(state: State, index: int, program: tuple[Step, ...]) -> Iterator[State]:
    """On the weak machine: answer a later load now, unless an observe, a fence or an exchange stands before it."""
    thread = state.threads[index]
    own = {name for name, _, _ in thread.stores}
    for kind, *names in program[thread.at :]:
        if kind not in ("load", "store", "publish", "bump"):
            return
        name = str(names[0])
        if kind == "load" and name not in own and name not in dict(thread.past):
            early = changed(thread.past, name, dict(state.memory)[name])
            yield replaced(state, index, thread._replace(past=early))
        if kind != "load":
            own.add(name)


def stepped(state: State, index: int, program: tuple[Step, ...]) -> Iterator[State]:
    """The state after the thread's next step; none while that must wait."""
    thread = state.threads[index]
    kind, *operands = program[thread.at]
    after = thread._replace(at=thread.at + 1)
    memory = dict(state.memory)
    if kind in ("store", "publish", "bump"):
        name, value = str(operands[0]), int(operands[1])
        if kind == "bump":
            value += dict(thread.read)[name]
        past = tuple(pair for pair in after.past if pair[0] != name)
        yield replaced(
            state, index, after._replace(stores=(*thread.stores, (name, value, kind == "publish")), past=past)
        )
    elif kind in ("load", "observe"):
        name = str(operands[0])
        own = [value for other, value, _ in thread.stores if other == name]
        early = dict(thread.past) if kind == "load" else {}
        value = own[-1] if own else early.get(name, memory[name])
        past = tuple(pair for pair in thread.past if pair[0] != name) if kind == "load" else ()
        yield replaced(state, index, after._replace(read=changed(thread.read, name, value), past=past))
    elif kind in ("if", "jump"):
        is_taken = kind == "if" and dict(thread.read)[str(operands[0])] == operands[1]
        yield replaced(state, index, thread._replace(at=thread.at + 1 + (0 if is_taken else int(operands[-1]))))
    elif not thread.stores:  # all others: at once, after the thread's stores are in memory
        yield from _at_once(state, index, thread.at + 1, kind, operands)


def _at_once(state: State, index: int, at: int, kind: str | int, operands: list[str | int]) -> Iterator[State]:
    after = state.threads[index]._replace(at=at)
    memory = dict(state.memory)
    if kind == "fence":
        yield replaced(state, index, after)
        return
    if kind == "fork":
        ended = tuple(other._replace(at=FOREVER, stores=()) for other in state.threads)
        yield replaced(State(state.memory, ended), index, after)
        return
    name = str(operands[0])
    before, value = memory[name], int(operands[-1]) if len(operands) > 1 else 1
    if (kind == "lock" and before != 0) or (kind == "until" and before != value):
        return  # waits
    new = read = before
    if kind in ("swap", "lock"):
        new = value
    elif kind == "park":
        new = 1 if memory["held"] == memory["awaited"] == 1 else before
    elif kind in ("add", "add_read"):
        new = read = before + value + (dict(after.read)[str(operands[1])] if kind == "add_read" else 0)
    past = () if kind != "park" else after.past
    after = after._replace(read=changed(after.read, name, read), past=past)
    yield replaced(state, index, after, changed(state.memory, name, new))


def explore(
    machine: str,
    programs: Programs,
    is_wrong: Callable[[dict[str, int], list[dict[str, int]]], bool],
    first: Mapping[str, int] | None = None,
) -> tuple[int, int]:
    """Walk all states; return how many there are, and how many ends are wrong.

    An end is a state in which no thread can go on: all are through, or those that are not wait for ever. `first` is
    what the memory holds at the start, 0 where it says nothing.
    """
    names = {str(step[1]) for program in programs for step in program if len(step) > 1 and isinstance(step[1], str)}
    memory = dict.fromkeys(names, 0) | dict(first or {})
    start = State(tuple(sorted(memory.items())), tuple(Thread(0, (), (), ()) for _ in programs))
    seen, todo, wrong = {start}, [start], 0
    while todo:
        state = todo.pop()
        following: list[State] = []
        for index, program in enumerate(programs):
            following += drained(state, index, machine)
            if state.threads[index].at < len(program):
                following += stepped(state, index, program)
                if machine == WEAK:
                    following += looked_ahead(state, index, program)
        if not following:
            wrong += is_wrong(dict(state.memory), [dict(thread.read) for thread in state.threads])
        fresh = set(following) - seen
        seen |= fresh
        todo += fresh
    return len(seen), wrong


def assembled(*steps: Step) -> tuple[Step, ...]:
    """Return a program without labels: ("at", label), ("goto", label), ("unless", name, value, label)."""
    places: dict[str, int] = {}
    count = 0
    for step in steps:
        if step[0] == "at":
            places[str(step[1])] = count
        else:
            count += 1
    program: list[Step] = []
    for step in steps:
        here = len(program) + 1
        if step[0] == "goto":
            program.append(("jump", places[str(step[1])] - here))
        elif step[0] == "unless":
            program.append(("if", step[1], step[2], places[str(step[3])] - here))
        elif step[0] != "at":
            program.append(step)
    return tuple(program)


def without(program: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    """Return the program without a step that it has."""
    assert step in program
    return tuple(other for other in program if other != step)
