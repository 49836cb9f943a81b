from typing import final

@final
class TopicQueues:
    name: str
    name_utf8: bytes
    topic_id: bytes | None
    leaders: tuple[int, ...]
    index: int
    partition_count: int
    @property
    def has_removed_partitions(self) -> bool: ...
    def __init__(self, *_: object) -> None: ...  # refused: made by Accumulator.set_topic()
