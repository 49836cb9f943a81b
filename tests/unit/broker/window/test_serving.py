"""The window answers the page with its token, and nothing else."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker, EmbeddedCluster
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.window.guarding import HEADERS
from kafkaprod.errors import ConfigError, IllegalStateError

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    "\"'`]]>",
    "a\u2028b\u202ec\u200bd",
    "nul\x00",
    "__proto__",
    "constructor",
    "x" * 249,
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 3, "empty": 1}, ui=True) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("orders", b'{"id": %d}' % number, b"cust-%d" % (number % 9), [("h", b"1"), ("h", b"2")])
        yield broker


def place_of(url: str) -> tuple[str, str]:
    address, _, token = url.partition("/#k=")
    return address.removeprefix("http://"), token


def ask(
    url: str,
    path: str,
    *,
    method: str = "GET",
    body: object = None,
    token: str | None = "own",
    headers: dict[str, str] | None = None,
) -> tuple[int, Any, dict[str, str]]:
    """Return status, content and headers."""
    host, own = place_of(url)
    connection = http.client.HTTPConnection(host, timeout=10)
    sent = {} if token is None else {"X-Kafkaprod-Token": own if token == "own" else token}
    if body is not None:
        sent |= {"Content-Type": "application/json", "Origin": f"http://{host}"}
    sent |= headers or {}
    connection.request(method, path, None if body is None else json.dumps(body), sent)
    answer = connection.getresponse()
    content = answer.read()
    found = dict(answer.getheaders())
    connection.close()
    return answer.status, json.loads(content) if found["Content-Type"] == "application/json" else content, found


def events(url: str, view: str, wanted: Callable[[dict[str, Any]], bool], **arguments: str) -> dict[str, Any]:
    """Read a stream until what it has sent last of each event is as wanted; return that."""
    host, token = place_of(url)
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request("GET", f"/events?{urlencode({'token': token, 'view': view, **arguments})}")
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    last: dict[str, Any] = {}
    deadline = time.monotonic() + 15
    try:
        while not wanted(last):
            assert time.monotonic() < deadline, last
            line = answer.readline().decode()
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                last[name] = json.loads(line[6:])
    finally:
        answer.close()
        connection.close()
    return last


def test_topics_and_records_are_shown_as_they_are(broker: EmbeddedBroker) -> None:
    last = events(broker.ui_url, "topics", lambda last: bool(last.get("topics", {}).get("rows")))
    rows = {row["name"]: row for row in last["topics"]["rows"]}
    assert (rows["orders"]["records"], rows["orders"]["partitions"], rows["empty"]["records"]) == (100, 3, 0)
    last = events(broker.ui_url, "topic", lambda last: "records" in last, topic="orders")
    shown = last["records"]["rows"]
    assert len(shown) == 50
    assert shown[0]["v"] == {"kind": "json", "text": '{"id": 99}', "size": 10}
    assert [name for name, _ in shown[0]["h"]] == ["h", "h"]


def test_a_record_is_found_by_what_is_in_it_and_by_its_offset(broker: EmbeddedBroker) -> None:
    status, found, _ = ask(broker.ui_url, "/records?topic=orders&find=%22id%22%3A%2042%7D")
    assert (status, [row["v"]["text"] for row in found["rows"]]) == (200, ['{"id": 42}'])
    row = found["rows"][0]
    status, opened, _ = ask(broker.ui_url, f"/record?topic=orders&partition={row['p']}&offset={row['o']}")
    assert (status, opened["v"]["indented"]) == (200, '{\n  "id": 42\n}')
    status, found, _ = ask(broker.ui_url, f"/records?topic=orders&partition={row['p']}&offset={row['o']}")
    assert found["rows"][0]["o"] == row["o"]
    assert ask(broker.ui_url, "/record?topic=orders&partition=0&offset=1000000")[0] == 409


def test_a_record_that_is_sent_from_the_page_arrives_and_is_shown(broker: EmbeddedBroker) -> None:
    record = {"topic": "sent", "key": "k", "value": None, "headers": [["a", "1"], ["a", None]], "partition": None}
    assert ask(broker.ui_url, "/create", method="POST", body={"topic": "sent", "partitions": 2})[0] == 200
    events(
        broker.ui_url,
        "topics",
        lambda last: any(row["name"] == "sent" for row in last.get("topics", {}).get("rows", ())),
    )
    status, sent, _ = ask(broker.ui_url, "/send", method="POST", body=record)
    assert status == 200, sent
    arrived = broker.records("sent", at_least=1)[0]
    assert (arrived.key, arrived.value, arrived.headers) == (b"k", None, [("a", b"1"), ("a", None)])
    assert (arrived.partition, arrived.offset) == (sent["partition"], sent["offset"])
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:  # where clients put the same key
        assert producer.send("sent", b"v", b"k").result(10).partition == sent["partition"]


def test_a_value_is_saved_as_it_is(broker: EmbeddedBroker) -> None:
    value = bytes(range(256)) * 300
    offset = broker.command(
        {"command": "send", "topic": "empty", "partition": 0, "value": base64.b64encode(value).decode()}
    )
    place = {"topic": "empty", "partition": 0, "offset": offset["offset"]}
    status, content, headers = ask(broker.ui_url, "/save", method="POST", body=place)
    assert (status, content) == (200, value)
    assert headers["Content-Disposition"] == f'attachment; filename="empty-0-{offset["offset"]}.bin"'


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/", "GET", {"Host": "evil.example"}, 421),
        ("/records?topic=orders", "GET", {"Host": "127.0.0.1:1"}, 421),
        ("/records?topic=orders", "GET", {"Origin": "http://evil.example"}, 403),
        ("/records?topic=orders", "GET", {"Origin": "null"}, 403),
        ("/records?topic=orders", "GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/records?topic=orders", "GET", {"Sec-Fetch-Site": "same-site"}, 403),
        ("/", "GET", {"Sec-Fetch-Site": "cross-site"}, 200),
        ("/send", "GET", {}, 404),
        ("/events?view=topics", "GET", {"X-Kafkaprod-Token": ""}, 403),
        ("/../showing.py", "GET", {}, 404),
        ("/page/index.html", "GET", {}, 404),
        ("/%2e%2e/serving.py", "GET", {}, 404),
        ("/" + "x" * 9000, "GET", {}, 414),
        ("/send", "PUT", {}, 501),
    ],
)
def test_what_does_not_come_from_the_page_is_refused(
    broker: EmbeddedBroker, path: str, method: str, headers: dict[str, str], status: int
) -> None:
    found, _, answered = ask(broker.ui_url, path, method=method, headers=headers)
    assert found == status
    assert {name: answered.get(name) for name in HEADERS} == HEADERS
    assert not any(name.lower().startswith("access-control") for name in answered)


@pytest.mark.parametrize("token", [None, "", "wrong", "é", "x" * 5000])
def test_without_the_token_nothing_is_shown_or_sent(broker: EmbeddedBroker, token: str | None) -> None:
    assert ask(broker.ui_url, "/records?topic=orders", token=token)[0] == 403
    assert ask(broker.ui_url, "/send", method="POST", body={"topic": "orders"}, token=token)[0] == 403
    assert ask(broker.ui_url, f"/send?{urlencode({'token': place_of(broker.ui_url)[1]})}", token=None)[0] == 403
    assert ask(broker.ui_url, "/", token=token)[0] == 200


def test_a_form_of_another_page_changes_nothing(broker: EmbeddedBroker) -> None:
    record = {"topic": "orders", "value": "x"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert ask(broker.ui_url, "/send", method="POST", body=record, headers=form)[0] == 415
    assert ask(broker.ui_url, "/send", method="POST", body=record, headers={"Origin": "http://evil.example"})[0] == 403
    assert len(broker.records("orders")) == 100


def test_two_hosts_are_refused(broker: EmbeddedBroker) -> None:
    host, _ = place_of(broker.ui_url)
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Host", host)
    connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


@pytest.fixture
def own_url() -> Iterator[str]:
    """The page of a broker of one test: a page that was closed counts until the server finds out."""
    with EmbeddedBroker(ui=True) as broker:
        yield broker.ui_url


def test_the_ninth_page_is_refused_and_a_closed_one_makes_room(own_url: str) -> None:
    host, token = place_of(own_url)
    opened = []

    def open_one() -> int:
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request("GET", f"/events?token={token}&view=brokers")
        opened.append((connection, connection.getresponse()))
        return opened[-1][1].status

    try:
        assert [open_one() for _ in range(9)] == [200] * 8 + [503]
        opened[0][1].close()
        opened[0][0].close()
        deadline = time.monotonic() + 10
        while open_one() == 503:
            assert time.monotonic() < deadline
    finally:
        for connection, answer in opened:
            answer.close()
            connection.close()


def test_hostile_keys_values_headers_and_ids_come_as_text(broker: EmbeddedBroker) -> None:
    broker.command({"command": "create", "topic": "hostile", "partitions": 1, "configs": {}})
    for text in HOSTILE:
        code = base64.b64encode(text.encode()).decode()
        record = {"command": "send", "topic": "hostile", "partition": 0}
        broker.command({**record, "key": code, "value": code, "headers": [[text, code]]})
    last = events(broker.ui_url, "topic", lambda last: "records" in last, topic="hostile")
    values = [row["v"]["text"] for row in reversed(last["records"]["rows"])]
    assert values[0] == HOSTILE[0]
    assert values[4] == "a⟨U+2028⟩b⟨U+202E⟩c⟨U+200B⟩d"
    assert values[5] == "6e 75 6c 00"


def test_the_page_stays_while_the_broker_is_down(broker: EmbeddedBroker) -> None:
    url = broker.ui_url
    broker.kill()
    last = events(url, "topics", lambda last: last.get("state", {}).get("brokers", [{}])[0].get("state") == "down")
    assert last["state"]["brokers"][0]["id"] == "0"
    broker.start()
    assert broker.ui_url == url
    events(url, "topics", lambda last: last.get("state", {}).get("brokers", [{}])[0].get("state") == "up")


def test_a_silent_broker_is_named_and_holds_the_others_not_up() -> None:
    with EmbeddedCluster(brokers=2, topics={"t": 2}, ui=True) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"1", partition=0)
            producer.send("t", b"2", partition=1)
        last = events(cluster.ui_url, "topics", lambda last: bool(last.get("topics", {}).get("rows")))
        assert {row["name"]: row["records"] for row in last["topics"]["rows"]}["t"] == 2
        with cluster.brokers[1].pause():
            states = {"1": "up", "2": "silent"}
            events(
                cluster.ui_url,
                "topics",
                lambda last: {each["id"]: each["state"] for each in last.get("state", {}).get("brokers", ())} == states,
            )


def test_a_broker_without_a_page_starts_nothing_for_it() -> None:
    with EmbeddedBroker() as broker:
        with pytest.raises(IllegalStateError, match="ui=True"):
            assert broker.ui_url
        assert (broker._window, broker._control) == (None, None)
    with pytest.raises(ConfigError, match="ui='yes'"):
        EmbeddedBroker(ui="yes")  # type: ignore[arg-type]


def test_a_page_on_a_port_that_is_taken_is_a_warning(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    port = int(place_of(broker.ui_url)[0].rpartition(":")[2])
    with EmbeddedBroker(ui=port) as other:
        assert "no page shows the broker" in caplog.text
        assert other.is_running
        with pytest.raises(EmbeddedBrokerError, match=str(port)):
            assert other.ui_url
