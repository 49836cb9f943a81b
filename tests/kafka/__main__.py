"""Apache Kafka by hand, or for another program: ``python -m tests.kafka [--nodes 3] [--topic NAME:PARTITIONS]``.

Prints one line of JSON when every node answers, ``{"bootstrap": ..., "version": ...}``, and runs until the end of its
input; then the nodes are killed and their data is deleted.
"""

import argparse
import json
import sys

from tests.kafka.cluster import KafkaCluster
from tests.kafka.runtime import BROKER_VERSION


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka", description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--version", default=BROKER_VERSION)
    parser.add_argument("--topic", action="append", default=[], metavar="NAME:PARTITIONS")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="of every broker")
    parser.add_argument("--full-speed", action="store_true", help="for benchmarks: slower to start, faster under load")
    options = parser.parse_args()
    overrides = dict(text.split("=", 1) for text in options.property)
    cluster = KafkaCluster(options.nodes, version=options.version, overrides=overrides, full_speed=options.full_speed)
    with cluster:
        for name, _, count in (text.rpartition(":") for text in options.topic):
            cluster.create_topic(name, int(count))
        print(json.dumps({"bootstrap": cluster.bootstrap(), "version": options.version}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
