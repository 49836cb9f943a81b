"""kafkaprod: a compiled, high-throughput Apache Kafka producer for Python.

The public names are loaded when they are first used, so that `kafkaprod broker` does not load the producer and the
producer not the broker.
"""

from __future__ import annotations

import importlib
import os
import sys
import typing
from importlib.machinery import EXTENSION_SUFFIXES

__version__ = "0.3.0.dev0"


def _refuse_unbuilt_tree(directory: str) -> None:
    """Raise ImportError if this is a source tree whose compiled modules were not built for this Python.

    Installed packages have no .pyx files, so for them this is one look for a file that is missing.
    """
    module = os.path.join(directory, "_core", "queues", "accumulator")
    if os.path.exists(f"{module}.pyx") and not any(os.path.exists(module + suffix) for suffix in EXTENSION_SUFFIXES):
        tree = os.path.dirname(directory)
        raise ImportError(
            f"kafkaprod in {tree} is not built for {sys.implementation.name} {sys.version_info[0]}."
            f"{sys.version_info[1]} ({sys.executable}): run `{sys.executable} -m pip install -e '.[load]'` in {tree}, "
            "or use the Python that it is installed for"
        )


_refuse_unbuilt_tree(__path__[0])

if typing.TYPE_CHECKING:
    from kafkaprod._core.columns.columns import Column, Headers
    from kafkaprod.admin.cluster import ClusterInfo
    from kafkaprod.aio import AsyncProducer
    from kafkaprod.config import ProducerConfig
    from kafkaprod.errors import KafkaError
    from kafkaprod.marks.calls import WriteBlock
    from kafkaprod.producer import Producer
    from kafkaprod.results.batch import DeliveryFuture
    from kafkaprod.results.block import BlockResult
    from kafkaprod.structs import RecordMetadata, TopicPartition
    from kafkaprod.tables import AvroRows, JsonRows, Named, TableResult, ValueSpec

__all__ = [
    "AsyncProducer",
    "AvroRows",
    "BlockResult",
    "ClusterInfo",
    "Column",
    "DeliveryFuture",
    "Headers",
    "JsonRows",
    "KafkaError",
    "Named",
    "Producer",
    "ProducerConfig",
    "RecordMetadata",
    "TableResult",
    "TopicPartition",
    "ValueSpec",
    "WriteBlock",
    "__version__",
]

_MODULES = {
    "AsyncProducer": "aio",
    "AvroRows": "tables",
    "BlockResult": "results.block",
    "ClusterInfo": "admin.cluster",
    "Column": "_core.columns.columns",
    "DeliveryFuture": "results.batch",
    "Headers": "_core.columns.columns",
    "JsonRows": "tables",
    "KafkaError": "errors",
    "Named": "tables",
    "Producer": "producer",
    "ProducerConfig": "config",
    "RecordMetadata": "structs",
    "TableResult": "tables",
    "TopicPartition": "structs",
    "ValueSpec": "tables",
    "WriteBlock": "marks.calls",
}


if not typing.TYPE_CHECKING:  # which would take any name for one of the package

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
