"""The reader's options: what is wrong is told in the words of Spark's own source, and nothing is passed over."""

import pytest

from kafkaprod.admin.topics import READ_COMMITTED, READ_UNCOMMITTED
from kafkaprod.errors import ConfigError
from kafkaprod.spark.reader import make_reader
from kafkaprod.spark.reader_options import EARLIEST, LATEST, Times, parse_reader_options

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "One of the following options must be specified for Kafka source: subscribe, subscribePattern, assign."),
        (
            {"subscribe": "t", "assign": '{"t":[0]}'},
            "Only one of the following options can be specified for Kafka source: subscribe, subscribePattern, assign.",
        ),
        ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
        ({"assign": "t"}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got t'),
        ({"assign": '["t"]'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got ["t"]'),
        ({"assign": '{"t":0}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"t":0}'),
        ({"assign": '{"t":["0"]}'}, "Expected e.g."),
        ({"assign": '{"t":[true]}'}, "Expected e.g."),
        ({"subscribePattern": "t["}, "subscribePattern='t[' is no regular expression"),
        ({"subscribe": "t", "startingTimestamp": "now"}, "startingTimestamp='now' must be a number of milliseconds"),
        ({"subscribe": "t", "endingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "endingOffsetsByTimestamp: Expected e.g."),
        ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
        ({"subscribe": "t", "failOnDataLoss": "x"}, "failondataloss='x' must be true or false"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "did you mean 'startingoffsets'?"),
        ({"subscribe": "t", "group.id": "g", "client.id": "c"}, "write it as 'kafka.client.id'"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"3":-1}}'},
            "startingOffsets for t-3 can't be latest for batch queries on Kafka",
        ),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'},
            "ending offset for t-0 can't be earliest for batch queries on Kafka",
        ),
        (
            {"subscribe": "t", "startingOffsets": "soon"},
            'startingOffsets: Expected earliest, latest or e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got soon',
        ),
        ({"subscribe": "t", "startingOffsets": "[1]"}, "startingOffsets: Expected"),
        ({"subscribe": "t", "startingOffsets": '{"a":' * 50_000}, "startingOffsets: Expected"),
        ({"assign": "[" * 50_000}, "Expected e.g."),
        ({"subscribe": "t", "startingOffsets": '{"t":5}'}, "startingOffsets: Expected"),
        ({"subscribe": "t", "endingOffsets": '{"t":{"a":5}}'}, "endingOffsets: Expected"),
        ({"subscribe": "t", "endingOffsets": '{"t":{"0":-3}}'}, "endingOffsets: Expected"),
        ({"subscribe": "t", "endingOffsets": '{"t":{"0":1.5}}'}, "endingOffsets: Expected"),
        ({"subscribe": "t", "includeHeaders": "yes"}, "includeheaders='yes' must be true or false"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "'auto.offset.reset' is not supported"),
        ({"subscribe": "t", "kafka.group.id": "g"}, "'group.id' is not supported: the reader joins no group"),
        ({"subscribe": "t", "kafka.isolation.level": "x"}, "'x' must be one of read_uncommitted, read_committed"),
        (
            {"subscribe": "t", "kafka.isolation.level": "read_committed", "isolation.level": "read_uncommitted"},
            "differ: leave one out",
        ),
        ({"subscribe": "t", "kafka.key.deserializer": "x"}, "'key.deserializer' is not supported: keys are binary"),
    ],
)
def test_wrong_option_of_the_reader_is_told(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_reader(SERVERS | options)
    assert words in str(caught.value)


def test_reader_needs_servers() -> None:
    with pytest.raises(ConfigError, match=r"'kafka\.bootstrap\.servers' must be specified for .* consumer"):
        make_reader({"subscribe": "t"})


def test_options_of_the_reader_are_read_as_sparks_source_reads_them() -> None:
    options = parse_reader_options(
        SERVERS
        | {
            "assign": '{"b":[2,0,2],"a":[1]}',
            "startingOffsets": '{"b":{"0":5,"2":-2},"a":{"1":0}}',
            "endingOffsets": " LATEST ",
            "failOnDataLoss": "false",
            "topic": "for-writing",
        }
    )
    assert options.assigned == {"b": (0, 2), "a": (1,)}
    assert options.starting == {("b", 0): 5, ("b", 2): EARLIEST, ("a", 1): 0}
    assert options.ending == LATEST
    assert parse_reader_options(SERVERS | {"subscribe": "a, b,,a"}).assigned == {"a": None, "b": None}


@pytest.mark.parametrize("name", ["isolation.level", "kafka.isolation.level"])
def test_isolation_is_read_uncommitted_unless_it_is_given(name: str) -> None:
    assert parse_reader_options(SERVERS | {"subscribe": "t"}).isolation == READ_UNCOMMITTED
    options = parse_reader_options(SERVERS | {"subscribe": "t", name: "READ_COMMITTED"})
    assert options.isolation == READ_COMMITTED
    assert "isolation.level" not in options.kafka


def test_times_win_over_offsets_and_one_time_for_all_over_those_of_partitions() -> None:
    given = {"subscribe": "t", "startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert parse_reader_options(SERVERS | given).starting == Times({("t", 0): 5}, is_missing_refused=True)
    options = parse_reader_options(
        SERVERS
        | given
        | {"startingTimestamp": "7", "endingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"}
    )
    assert options.starting == Times(7, is_missing_refused=False)
    assert options.ending == Times(9, is_missing_refused=False)


def test_pattern_replaces_the_names_of_topics() -> None:
    options = parse_reader_options(SERVERS | {"subscribePattern": r"orders-\d+"})
    assert options.assigned == {}
    assert options.pattern is not None
    assert options.pattern.fullmatch("orders-12")
