"""The page of a broker in a real browser: `python -m tests.campaigns.window [--pictures DIRECTORY]`.

A headless Chromium (`apt install chromium`) and Playwright (`pip install playwright`) open the page of a broker whose
keys, values, headers, groups and clients have hostile names, at three widths, light and dark. Looked at: no script of
theirs runs, no element is added, nothing is requested elsewhere, no message is in the console, nothing is cut sideways,
what is opened stays open while records come, and the keyboard reaches all screens. Exit status 0 if all of it holds.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.faults import delay

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    "\"'`]]>{{7*7}}",
    "a\u2028b\u202ec\u200bd",
    "nul\x00",
    "__proto__",
    "constructor",
    "x" * 249,
    "y" * 30_000,
]
WIDTHS = (390, 1366, 1920)
SCREENS = {
    "topics": "#/topics",
    "topic": "#/topic/orders",
    "groups": "#/groups",
    "group": "#/group/billing",
    "transactions": "#/transactions",
    "requests": "#/requests",
    "faults": "#/faults",
    "brokers": "#/brokers",
}


class Failures(list[str]):
    """What was seen and may not be."""

    def expect(self, is_true: object, what: str) -> None:
        """Note what is not so."""
        if not is_true:
            self.append(what)


def fill(broker: EmbeddedBroker, producer: Producer) -> None:
    """Write hostile records, and have hostile groups commit."""
    for number in range(60):
        producer.send("orders", b'{"id": %d, "price": 1.10}' % number, b"cust-%d" % (number % 7), [("source", b"web")])
    for text in HOSTILE:
        producer.send("orders", text.encode(), text.encode(), [(text, text.encode()), (text, None)])
    producer.send("orders", None, None)
    producer.send("orders", b"", b"")
    producer.flush(10)
    broker.command({"command": "send", "topic": "orders", "partition": 0, "value": "AAAAAAf/", "time": -1})
    for text in HOSTILE[:8]:
        broker.faults.on("HEARTBEAT", delay(1), group=text, note=text)
    broker.faults.on("OFFSET_COMMIT", delay(1), times=3)
    for group in ["billing", *(text for text in HOSTILE if "\x00" not in text and len(text) < 1_000)]:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "client.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, 1, metadata=group)], asynchronous=False)
        consumer.close()


def look(page: Any, broker: EmbeddedBroker, failures: Failures, pictures: Path | None, label: str) -> None:
    """Look at all screens."""
    page.goto(broker.ui_url)
    page.wait_for_selector("text=orders")
    failures.expect("k=" not in page.url, f"{label}: the address keeps the secret")
    for name, fragment in SCREENS.items():
        page.goto(page.url.split("#")[0] + fragment)
        page.wait_for_function("document.querySelector('main h1, main h2') !== null")
        page.wait_for_timeout(1_200)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        failures.expect(wide <= 0, f"{label} {name}: {wide} px too wide")
        foreign = page.evaluate("document.querySelectorAll('main img, main script, main iframe, main svg').length")
        failures.expect(not foreign, f"{label} {name}: {foreign} elements that are not the page's own")
        if pictures is not None:
            page.screenshot(path=str(pictures / f"{name}-{label}.png"))


def use(page: Any, broker: EmbeddedBroker, producer: Producer, failures: Failures) -> None:
    """Open a record while others come, find one, send one, and move by keys alone."""
    page.goto(broker.ui_url)
    page.wait_for_selector("text=orders")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("tr.row >> text=0:")
    page.keyboard.press("j")
    page.keyboard.press("j")
    opened = page.evaluate("document.activeElement.cells[0].textContent")
    page.keyboard.press("Enter")
    page.wait_for_selector("tr.detail pre")
    for _ in range(20):
        producer.send_many("orders", [b"more"] * 500).wait()
        page.wait_for_timeout(100)
    failures.expect(page.locator("tr.detail pre").count() == 1, "an opened record closed by itself")
    failures.expect(page.locator(f"tr.open >> text={opened}").count() == 1, "another record is open now")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type('"id": 42,')
    page.keyboard.press("Enter")
    page.wait_for_selector("text=1 found")
    failures.expect(page.locator("tr.row").count() == 1, "find shows others, too")
    page.goto(page.url.split("#")[0] + "#/topic/orders")
    page.wait_for_selector("tr.row")
    page.keyboard.press("s")
    page.get_by_label("key", exact=True).fill("sent")
    page.get_by_label("value", exact=True).fill("by hand")
    page.get_by_label("headers").fill("a=1\na")
    page.get_by_text("Do it").click()
    page.wait_for_selector("text=it is at")
    found = [record for record in broker.records("orders") if record.key == b"sent"]
    failures.expect([record.headers for record in found] == [[("a", b"1"), ("a", None)]], f"sent: {found}")
    page.keyboard.press("Escape")
    broker.kill()
    page.wait_for_selector("text=is down since")
    broker.start()
    page.wait_for_selector("text=live")
    for number, title in enumerate(("Topics", "Groups", "Transactions", "Requests", "Faults", "Brokers"), 1):
        page.keyboard.press(str(number))
        page.wait_for_selector(f"h1:has-text('{title}')")


def run(pictures: Path | None) -> Failures:
    """Look at a broker; return what may not be."""
    sync_playwright: Any = importlib.import_module("playwright.sync_api").sync_playwright
    failures = Failures()
    with (
        EmbeddedBroker(topics={"orders": 1, "payments": 3, "refunds": 1}, ui=True) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        sync_playwright() as playwright,
    ):
        fill(broker, producer)
        origin = broker.ui_url.partition("#")[0]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def watched(width: int, scheme: Any) -> Any:
            page = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme).new_page()
            page.on("dialog", lambda dialog: failures.append(f"a script ran: {dialog.message}"))
            page.on("console", lambda message: failures.append(f"console: {message.text}"))
            page.on("pageerror", lambda error: failures.append(f"error: {error}"))
            page.on("request", lambda asked: failures.expect(asked.url.startswith(origin), f"asks {asked.url}"))
            return page

        for width in WIDTHS:
            for scheme in ("light", "dark"):
                page = watched(width, scheme)
                look(page, broker, failures, pictures, f"{width}-{scheme}")
                page.context.close()
        page = watched(1366, "light")
        use(page, broker, producer, failures)
        browser.close()
    return Failures(each for each in failures if not re.search(r"ERR_(CONNECTION|INCOMPLETE)", each))


def main() -> int:
    """Look, and print what may not be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pictures", type=Path, metavar="DIRECTORY", help="keep pictures of all screens there")
    options = parser.parse_args()
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    failures = run(options.pictures)
    for failure in failures:
        print(failure)
    print(f"{len(failures)} failures, {threading.active_count()} threads left")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
