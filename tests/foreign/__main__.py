"""Runs other projects' own test suites against the embedded broker: `python -m tests.foreign kafka-python`.

    download what the package registry has -> leave the network -> run the tests, with our broker in place of Kafka
    -> compare the failures with those expected, and say why those fail

Python (`python_packages`), Go (`go_modules`), Rust (`cargo_crates`), C (`librdkafka`), Java (`kafka_tools`). Where the
package has no tests, --source names a clone of the repository. What follows -- is for the test runner: -k NAME for
pytest, -run=NAME for go test, a name for cargo test, a number for librdkafka. The tests run in a network of their own,
with nothing but the loopback interface.

Exit status 0 if no other tests failed, and none of the expected ones passed. Needs the network for the first step.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from tests.foreign import cargo_crates, go_modules, kafka_tools, librdkafka, python_packages, sarama
from tests.foreign.results import summarize

KAFKA_TOOLS = "kafka-tools"
SARAMA = "sarama"


def main() -> int:
    """Run one suite and print counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.foreign", description=__doc__.splitlines()[0])
    parser.add_argument(
        "suite",
        choices=sorted(
            [*python_packages.SUITES, *go_modules.SUITES, *cargo_crates.SUITES, *librdkafka.SUITES, KAFKA_TOOLS, SARAMA]
        ),
    )
    parser.add_argument("--source", type=Path, help="a clone of the repository, where the package has no tests")
    own = list(itertools.takewhile(lambda argument: argument != "--", sys.argv[1:]))
    further_options = sys.argv[len(own) + 2 :]
    options = parser.parse_args(own)
    if options.suite in go_modules.SUITES:
        go_suite = go_modules.SUITES[options.suite]
        results = go_modules.run(go_suite, further_options)
        return summarize(go_suite.requirement, results, go_suite.expected_failures)
    if options.suite in cargo_crates.SUITES:
        rust_suite = cargo_crates.SUITES[options.suite]
        results = cargo_crates.run(rust_suite, further_options)
        return summarize(rust_suite.requirement, results, rust_suite.expected_failures)
    if options.suite == SARAMA:
        return summarize(sarama.REQUIREMENT, sarama.run(further_options), sarama.EXPECTED_FAILURES)
    if options.suite == KAFKA_TOOLS:
        return summarize(kafka_tools.REQUIREMENT, kafka_tools.run(), kafka_tools.EXPECTED_FAILURES)
    if options.suite in librdkafka.SUITES:
        if options.source is None:
            parser.error("the tests of librdkafka are only in its repository: give --source")
        c_suite = librdkafka.SUITES[options.suite]
        results = librdkafka.run(c_suite, options.source, further_options)
        return summarize(c_suite.requirement, results, c_suite.expected_failures)
    suite = python_packages.SUITES[options.suite]
    if suite.is_in_repository and options.source is None:
        parser.error(f"the tests of {options.suite} are only in its repository: give --source")
    results = python_packages.run(suite, options.source, further_options)
    return summarize(suite.requirement, results, suite.expected_failures)


if __name__ == "__main__":
    sys.exit(main())
