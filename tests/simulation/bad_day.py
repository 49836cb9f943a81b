"""Bad days: brokers that hang while they lead, links that pass little or lose one way, clusters far away.

These faults come among the usual ones. Programs send larger records, wait in line for memory, and let batches grow; the
least limits of a node's memory are small, so that some hundred records reach them.

path     no request is under way to a node when all of them have ended
memory   batches hold no more than buffer_memory, and each node's account what its batches hold
starves  who waits for memory is woken when there is some (a wait that nothing ends is seen when all faults have ended)
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kafkaprod.engine import memory_shares
from tests.simulation.checker import ViolationError
from tests.simulation.producing import EngineNode
from tests.simulation.rules import replaced
from tests.simulation.run import CHECK_EACH_EVENTS, Outcome, Simulation
from tests.simulation.serving import Gray
from tests.simulation.world import Link

LEAST_BYTES = 20_000
START_BYTES = 60_000
LONGEST_MS = 1500


class BusyEngineNode(EngineNode):
    """A program whose records use up its memory now and then."""

    def _options(self, hosts: list[str]) -> dict[str, Any]:
        chance = self.world.random
        options = super()._options(hosts)
        self._padding = chance.choice((40, 1000, 5000))
        batch_size = int(options["batch_size"])
        return {
            **options,
            "max_batch_size": batch_size if batch_size == 1 else batch_size * chance.choice((1, 4, 16)),
            "buffer_memory": chance.choice((1 << 16, 100_000, 1 << 20)),
            "partitioner_availability_timeout_ms": chance.choice((0, 50, 500)),
        }

    def check_memory(self) -> None:
        """Check what the pool says of itself.

        Raises:
            ViolationError: More is in use than there is, or the accounts do not sum up to it.
        """
        pool = self.engine.accumulator.pool
        held = sum(held for _, held, _ in pool.shares())
        if held != pool.in_use:
            raise ViolationError(f"memory: accounts hold {held} bytes, and {pool.in_use} are in use")
        if pool.in_use > pool.capacity:
            raise ViolationError(f"memory: {pool.in_use} of {pool.capacity} bytes are in use")


class BadDay(Simulation):
    """A simulation with gray failures, thin links and far ones among its faults."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.world.random
        bad = [self._gray, self._gray, self._thin, self._far, self._lose_one_way]
        usual = chance.sample(self._kinds, chance.randint(0, min(3, len(self._kinds))))
        self._kinds = [*usual, *chance.sample(bad, chance.randint(1, len(bad)))]
        self.world.rules.socket_bytes = chance.choice((4_000, 64_000, 1 << 21))

    def run(self) -> Outcome:
        """See `Simulation.run`."""
        with ExitStack() as scaled:
            scaled.enter_context(replaced(memory_shares, "LEAST_BYTES", LEAST_BYTES))
            scaled.enter_context(replaced(memory_shares, "START_BYTES", START_BYTES))
            outcome = super().run()
            longest_ms = max(engine.config.request_timeout_ms for engine in self.engines)
            self._run_while(self._is_memory_in_use, longest_ms + 500)  # of batches that expired under way
        if self._is_memory_in_use():
            raise ViolationError("memory: some is in use, and no request is under way")
        for engine in self.engines:
            self._check_paths(engine)
        return outcome

    @staticmethod
    def _check_paths(engine: EngineNode) -> None:
        for broker_id in engine.engine.node_pool.node_ids():
            path = engine.engine.sender.states.paths.get(broker_id)
            if path is not None and (path.in_flight_bytes or path.in_flight_count):
                raise ViolationError(f"path: {path.in_flight_bytes} bytes are under way to node {broker_id} for ever")

    def _is_memory_in_use(self) -> bool:
        return any(engine.engine.accumulator.pool.in_use for engine in self.engines)

    def _make_engine(self, number: int) -> EngineNode:
        return BusyEngineNode(self.world, self.brokers, self.outcomes, number, "events")

    def _run(self, end_ms: int) -> None:
        self.world.run_until(end_ms, self._check, CHECK_EACH_EVENTS)

    def _check(self) -> None:
        self.checker.check_all()
        for engine in self.engines:
            assert isinstance(engine, BusyEngineNode)
            engine.check_memory()

    # -- faults --------------------------------------------------------------------------------------------------------

    def _gray(self) -> None:
        """Let one broker hang or be slow; another one that was is well again."""
        chance = self.world.random
        answer_ms = chance.choice((None, None, 50, 300, 900))
        gray = Gray(answer_ms, only_produce=chance.random() < 0.5)
        broker = self._some_broker()
        self.world.note(f"{broker.process.name} is gray: {gray}")
        for other in self.brokers.values():
            other.server.gray = None
        broker.server.gray = gray
        self.world.at(chance.randint(100, LONGEST_MS), lambda: self._end_gray(broker.broker_id, gray))

    def _end_gray(self, broker_id: int, gray: Gray) -> None:
        server = self.brokers[broker_id].server
        if server.gray is gray:
            server.gray = None

    def _clients_of(self, engine: EngineNode) -> list[tuple[str, str]]:
        """Return some directions between an engine and brokers: those of one, or of all."""
        chance = self.world.random
        brokers = list(self.brokers.values()) if chance.random() < 0.5 else [self._some_broker()]
        return [(engine.process.name, broker.process.name) for broker in brokers]

    def _thin(self) -> None:
        """Let little pass between an engine and brokers, over one wire for each way."""
        chance = self.world.random
        pairs = self._clients_of(chance.choice(self.engines))
        up, down = Link(chance.choice((5_000, 50_000, 500_000))), Link(500_000)
        self.world.note(f"{up.bytes_per_s} bytes a second pass {pairs}")
        links = dict.fromkeys(pairs, up) | {pair[::-1]: down for pair in pairs}
        self.world.links |= links
        self.world.at(chance.randint(200, LONGEST_MS), lambda: self._remove(links))

    def _remove(self, links: dict[tuple[str, str], Link]) -> None:
        for pair, link in links.items():
            if self.world.links.get(pair) is link:
                del self.world.links[pair]

    def _far(self) -> None:
        """Put brokers far away from an engine."""
        chance = self.world.random
        delay_ms = chance.choice((25, 125))
        pairs = self._clients_of(chance.choice(self.engines))
        self.world.note(f"{delay_ms} ms each way: {pairs}")
        for pair in pairs:
            for way in (pair, pair[::-1]):
                self.world.slow[way] = delay_ms
        self.world.at(chance.randint(200, LONGEST_MS), lambda: self._come_near(pairs))

    def _come_near(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self._hurry(*pair)
            self._hurry(*pair[::-1])

    def _lose_one_way(self) -> None:
        """Lose what an engine sends, or what it is answered, for longer than it waits."""
        chance = self.world.random
        pairs = self._clients_of(chance.choice(self.engines))
        if chance.random() < 0.5:
            pairs = [pair[::-1] for pair in pairs]
        self.world.note(f"lose {pairs}")
        self.world.cuts |= set(pairs)
        self.world.at(chance.randint(300, LONGEST_MS), lambda: self.world.cuts.difference_update(pairs))
