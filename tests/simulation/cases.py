"""Directed bad days: one fault, one program at a steady rate, and a judge; each is there for a rule of the producer.

The seeds of `--bad-day` see what must never be. A case sees what a rule is for: how fast, how soon, from whom. It holds
with the rule, and not without (`case_rules`).
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar
from unittest.mock import patch

from kafkaprod.engine.node_states import NodeCondition, NodeStates
from kafkaprod.engine.paths import Paths
from tests.simulation.run import STARTS_MS, Simulation, creation
from tests.simulation.serving import Gray
from tests.simulation.steady import TOPIC, Load, Sent, SteadyNode
from tests.simulation.world import Link

THREE_BROKERS = 3
WARM_UP_MS = 500
FAR_MS = 125  # each way
THIN_BYTES_PER_S = 100_000
MIB = 1 << 20


class Day(Simulation):
    """Three brokers, one topic, one program; what a case does to them happens after the warm-up."""

    def __init__(self, case: type[Case]) -> None:
        super().__init__(next(seed for seed in range(99) if len(Simulation(seed).brokers) == case.broker_count))
        self._case = case
        self.world.rules.min_delay_ms, self.world.rules.max_delay_ms = 0, 1
        for broker in self.brokers.values():
            broker.min_isr = 1
            broker.settings.max_batches = 100

    @property
    def node(self) -> SteadyNode:
        """The program."""
        (node,) = self.engines
        assert isinstance(node, SteadyNode)
        return node

    def leader(self, partition: int) -> int:
        """Return the id of the broker that leads a partition."""
        return next(image.leader for key, image in self._image().partitions.items() if key[1] == partition)

    def sick_ids(self) -> list[int]:
        """Return the ids of the nodes that the producer holds for sick."""
        states = self.node.engine.sender.states
        return [number for number in self.brokers if states.state_of(number) is NodeCondition.SICK]

    def pass_only(self, bytes_per_s: int) -> None:
        """Let so much pass from the program to all brokers together."""
        up = Link(bytes_per_s)
        for broker in self.brokers.values():
            self.world.links[self.node.process.name, broker.process.name] = up

    def put_far_away(self) -> None:
        """Put all brokers far away from the program."""
        for broker in self.brokers.values():
            for way in (self.node.process.name, broker.process.name), (broker.process.name, self.node.process.name):
                self.world.slow[way] = FAR_MS

    def let_hang(self, broker_id: int) -> None:
        """Let a broker answer nothing."""
        self.brokers[broker_id].server.gray = Gray(None, only_produce=False)

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass."""
        self._run(self.world.now_ms + milliseconds)

    def play(self) -> str | None:
        """Play the case; return what was not as it must be."""
        case = self._case()
        self.controller.start()
        for broker in self.brokers.values():
            broker.start()
        self._run_while(lambda: not self._are_serving(), STARTS_MS)
        self._ask_controller(creation(TOPIC, case.partition_count, replication_factor=1))
        self._run_while(lambda: len(self._keys()) < case.partition_count or not self.checker.is_at_rest(), STARTS_MS)
        self.engines.append(SteadyNode(self.world, self.brokers, self.outcomes, case.load))
        case.prepare(self)
        self._run_while(lambda: self.node._queues is None, STARTS_MS)
        return case.judge(self)


class Case:
    """One bad day.

    Attributes:
        load: What the program sends.
        partition_count: Of its topic; brokers lead them in turn.
        broker_count: Three to five.
        is_scaled: Whether the least bytes of a node's memory are as few as some hundred records.
    """

    load: ClassVar[Load]
    partition_count: ClassVar[int] = THREE_BROKERS
    broker_count: ClassVar[int] = THREE_BROKERS
    is_scaled: ClassVar[bool] = True

    def prepare(self, day: Day) -> None:
        """Make the network as it is from the start."""

    def judge(self, day: Day) -> str | None:
        """Let time pass, do what is bad, and return what was not as it must be."""
        raise NotImplementedError


def _middle_ms(records: list[Sent]) -> int:
    times = sorted(record.done_ms - record.sent_ms for record in records)
    return times[len(times) // 2]


class FarAndFull(Case):
    """One partition far away fills the path: batches grow while the requests before them are under way."""

    load = Load(4_000, 1_000, options={"batch_size": 65_536, "max_batch_size": 524_288, "buffer_memory": 8 * MIB})
    partition_count = 1

    def prepare(self, day: Day) -> None:
        """See `Case`."""
        day.put_far_away()

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(2_000)
        before = len(day.node.delivered)
        day.pass_time(3_000)
        per_s = (len(day.node.delivered) - before) / 3
        return None if per_s > 3_600 else f"{per_s:.0f} records a second of 4000"


class FarAndQuiet(Case):
    """Far away at a low rate, requests do not bunch: half of the records are there soon after a round trip."""

    load = Load(300, 100)
    partition_count = 1

    def prepare(self, day: Day) -> None:
        """See `Case`."""
        day.put_far_away()

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(6_000)
        middle_ms = _middle_ms(day.node.delivered[len(day.node.delivered) // 3 :])
        return None if middle_ms < 1.2 * 2 * FAR_MS else f"half of the records took {middle_ms} ms or more"


class ThinAtFirst(Case):
    """A thin link acknowledges the first records soon: no batch is large before there was an answer."""

    load = Load(2_000, 1_000, options={"batch_size": 65_536, "max_batch_size": 1_000_000})
    partition_count = 1
    is_scaled = False

    def prepare(self, day: Day) -> None:
        """See `Case`."""
        day.put_far_away()  # records wait for the connection
        day.pass_only(THIN_BYTES_PER_S)

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(2_000)
        return None if day.node.delivered else "nothing is acknowledged after 2 s"


class ThinAndWide(Case):
    """Many partitions over a thin link: no more is under way than is answered in time."""

    load = Load(
        2_000,
        1_000,
        "each",
        {"request_timeout_ms": 4_000, "delivery_timeout_ms": 60_000, "batch_size": 16_384, "buffer_memory": 2 * MIB},
    )
    partition_count = 60

    def prepare(self, day: Day) -> None:
        """See `Case`."""
        day.pass_only(THIN_BYTES_PER_S)

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        with patch.object(Paths, "on_ended", autospec=True, side_effect=Paths.on_ended) as on_ended:
            day.pass_time(15_000)
        count = sum(not call.kwargs["is_answered"] for call in on_ended.call_args_list)
        return None if count == 0 else f"{count} of {on_ended.call_count} requests got no answer in time"


class ThinAndFull(Case):
    """A program that is faster than its thin link sends nothing that is about to expire."""

    load = Load(
        1_000,
        1_000,
        options={
            "delivery_timeout_ms": 8_000,
            "request_timeout_ms": 4_000,
            "batch_size": 16_384,
            "buffer_memory": 4 * MIB,
        },
    )

    def prepare(self, day: Day) -> None:
        """See `Case`."""
        day.pass_only(THIN_BYTES_PER_S)

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(20_000)
        return None if not day.node.errors else f"{dict(day.node.errors)} of {len(day.node.delivered)} delivered"


class ThinAndFullAtOnce(Case):
    """A program that could fill the memory before there is a connection loses none of it on a thin link."""

    load = Load(
        4_000,
        1_000,
        options={
            "delivery_timeout_ms": 8_000,
            "request_timeout_ms": 4_000,
            "batch_size": 16_384,
            "buffer_memory": 4 * MIB,
        },
    )

    def prepare(self, day: Day) -> None:
        """See `Case`."""
        day.put_far_away()  # records wait for the connection
        day.pass_only(THIN_BYTES_PER_S)

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(12_000)
        return None if not day.node.errors else f"{dict(day.node.errors)} of {len(day.node.delivered)} delivered"


class ThinAndShared(Case):
    """Several brokers behind one thin link hold no more together than it delivers in time."""

    load = Load(200, 1_000, "each", {"request_timeout_ms": 5_000, "delivery_timeout_ms": 20_000})
    partition_count = 20
    broker_count = 5
    is_scaled = False

    def prepare(self, day: Day) -> None:
        """See `Case`."""
        day.pass_only(THIN_BYTES_PER_S)

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(60_000)
        return None if not day.node.errors else f"{dict(day.node.errors)} of {len(day.node.delivered)} delivered"


class OneHangs(Case):
    """Beside a broker that hangs, records for the others find memory."""

    load = Load(1_000, 1_000, "each", {"buffer_memory": MIB, "batch_size": 16_384})

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(WARM_UP_MS)
        day.let_hang(day.leader(0))
        day.pass_time(8_000)
        refused = {partition: count for partition, count in day.node.refused.items() if partition != 0}
        return None if not refused else f"no memory for records of healthy partitions: {refused}"


class OneHangsWithoutKeys(Case):
    """Records without a key leave a broker that hangs, within the time after which it is slow."""

    load = Load(200, 100)

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(WARM_UP_MS)
        day.let_hang(day.leader(0))
        day.pass_time(1_000)
        before = Counter(day.node.taken)
        day.pass_time(4_000)
        count = (day.node.taken - before)[0]
        return None if count == 0 else f"{count} records of 800 for a partition that hangs"


class AHangEnds(Case):
    """A broker that is well again gets records again."""

    load = OneHangsWithoutKeys.load

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(WARM_UP_MS)
        broker_id = day.leader(0)
        day.let_hang(broker_id)
        day.pass_time(4_000)
        if day.sick_ids() != [broker_id]:
            return f"sick are {day.sick_ids()}, and {broker_id} hangs"
        day.brokers[broker_id].server.gray = None
        day.pass_time(1_000)
        before = Counter(day.node.taken)
        day.pass_time(3_000)
        count = (day.node.taken - before)[0]
        return None if count > 50 else f"{count} records of 600 for the broker that is well again"


class WePause(Case):
    """A program that was stopped, with its machine, takes no broker for sick."""

    load = Load(200, 100)
    partition_count = 1

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(WARM_UP_MS)
        broker = day.brokers[day.leader(0)]
        answers = (broker.process.name, day.node.process.name)
        day.world.cuts.add(answers)
        day.pass_time(50)  # a request is under way
        day.world.at(5_100, lambda: day.world.cuts.discard(answers))
        day.node.process.paused_until_ms = day.world.now_ms + 5_000
        with patch.object(NodeStates, "_change", autospec=True, side_effect=NodeStates._change) as change:
            day.pass_time(6_000)
        states = [call.args[3] for call in change.call_args_list]
        return None if NodeCondition.SICK not in states else "the broker was sick for a while"


class WeAreCutOff(Case):
    """A program whose own network is gone takes no broker for sick."""

    load = Load(200, 100, "each")

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(WARM_UP_MS)
        day.world.cuts |= {(broker.process.name, day.node.process.name) for broker in day.brokers.values()}
        day.pass_time(4_000)
        return None if len(day.sick_ids()) < THREE_BROKERS else f"all are sick: {day.sick_ids()}"


class OneIsSlowWithoutKeys(Case):
    """Records without a key go no more to a broker that answers late than to one that answers soon."""

    load = Load(200, 100)

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(WARM_UP_MS)
        slow = day.leader(0)
        complaints = []
        for answer_ms in (100, 300, 40):
            day.brokers[slow].server.gray = Gray(answer_ms, only_produce=True)
            day.pass_time(1_000)
            before, delivered = Counter(day.node.taken), len(day.node.delivered)
            day.pass_time(4_000)
            count = (day.node.taken - before)[0]
            late = [record for record in day.node.delivered[delivered:] if record.partition != 0]
            middle_ms, others_ms = _middle_ms(day.node.delivered[delivered:]), _middle_ms(late)
            if count > 350 or middle_ms > 2 * others_ms:
                complaints.append(
                    f"{answer_ms} ms: {count} of 800 records, half of all in {middle_ms} ms ({others_ms})"
                )
            day.brokers[slow].server.gray = None
            day.pass_time(1_000)
        return "; ".join(complaints) or None


class AllPause(Case):
    """A program that sends steadily may go on while its brokers pause, as long as there is memory, each time."""

    load = Load(300, 1_000, "each", {"buffer_memory": 4 * MIB, "batch_size": 16_384})

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(2_000)
        for _ in range(3):
            for broker_id in day.brokers:
                day.let_hang(broker_id)
            day.pass_time(4_000)
            for broker in day.brokers.values():
                broker.server.gray = None
            day.pass_time(2_000)
        return None if not day.node.refused else f"no memory for {dict(day.node.refused)}, and most of it is free"


class SlowEachTime(Case):
    """A broker that was slow is well after its third answer, each time that it was."""

    load = Load(1_000, 100, "each", {"linger_ms": 0})

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(WARM_UP_MS)
        slow = day.leader(0)
        answers: list[int] = []

        def on_answer(states: NodeStates, node_id: int, now_ms: int) -> None:
            before = states.state_of(node_id)
            note(states, node_id, now_ms)
            if node_id == slow and before is not NodeCondition.OK:
                answers.append(len(answers) + 1)
                if states.state_of(node_id) is NodeCondition.OK:
                    counts.append(len(answers))
                    answers.clear()

        note, counts = NodeStates.on_answer, list[int]()
        with patch.object(NodeStates, "on_answer", on_answer):
            for _ in range(4):
                day.let_hang(slow)
                day.pass_time(1_000)
                day.brokers[slow].server.gray = None
                day.pass_time(8_000)
        return None if len(counts) >= 3 and min(counts) >= 3 else f"well after {counts} answers"


class OthersAreIdle(Case):
    """A broker that hangs is sick, also where the others have nothing to answer."""

    load = Load(200, 100, "each")

    def judge(self, day: Day) -> str | None:
        """See `Case`."""
        day.pass_time(WARM_UP_MS)
        day.node.send_to_first()
        day.pass_time(1_000)
        broker_id = day.leader(0)
        day.let_hang(broker_id)
        day.pass_time(4_000)
        return None if day.sick_ids() == [broker_id] else f"sick are {day.sick_ids()}, and {broker_id} hangs"
