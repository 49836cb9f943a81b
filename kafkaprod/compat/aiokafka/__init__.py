"""aiokafka's producer interface: `from kafkaprod.compat.aiokafka import AIOKafkaProducer`.

Everything else that aiokafka has, consumers say, is taken from it if it is installed.

producer  aiokafka's AIOKafkaProducer over `kafkaprod.AsyncProducer`
client    what frameworks and instrumentation look up in `producer.client`
batch     aiokafka's BatchBuilder: records gathered by the program, for one partition
options   aiokafka's options and what becomes of each in kafkaprod
outcomes  asyncio futures for the outcomes of records
errors    aiokafka's `aiokafka.errors`, and what each error of kafkaprod is there
structs   aiokafka's `aiokafka.structs`: what a producer needs; the rest is taken from aiokafka
"""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.aiokafka.producer import AIOKafkaProducer
from kafkaprod.compat.aiokafka.structs import TopicPartition
from kafkaprod.compat.originals import original

__all__ = ["AIOKafkaProducer", "TopicPartition"]


def __getattr__(name: str) -> Any:
    return original("aiokafka", name, __name__)
