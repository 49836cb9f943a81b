"""Whether a page of the built documentation is wider than its window: `python -m tests.pages.widths build/docs`.

A headless Chromium (`apt install chromium`, or KAFKAPROD_CHROMIUM=FILE) loads every page into a frame, gives the frame
every width from 320 to 2560 px in steps, and reports where the page would have to be scrolled sideways. Wide tables and
blocks of code scroll by themselves, which is no fault. Exit status 0 if nothing is cut.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

WIDTHS = sorted({*range(320, 2561, 40), 360, 390, 414, 768, 1072, 1088, 1312, 1328, 1366, 1440, 1536, 1552, 1680, 1920})
PATIENCE_S = 540
_HARNESS = """<!doctype html><title>widths</title><body><iframe id="frame" style="height: 900px; border: 0"></iframe>
<script>
const pages = PAGES, widths = WIDTHS, frame = document.getElementById("frame"), wrong = [];
async function look(page) {
    await new Promise((done) => { frame.onload = done; frame.src = page; });
    for (const width of widths) {
        frame.style.width = width + "px";
        const root = frame.contentDocument.documentElement;
        if (root.scrollWidth > root.clientWidth) wrong.push([page, width, root.scrollWidth]);
    }
}
(async () => {
    for (const page of pages) await look(page);
    const out = document.createElement("pre");
    out.id = "result";
    out.textContent = JSON.stringify({pages: pages.length, wrong: wrong});
    document.body.append(out);
})();
</script>"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def measure(directory: Path, chromium: str) -> tuple[int, list[tuple[str, int, int]]]:
    """Return the number of pages, and (page, width of the window, width of the page) of those that are cut."""
    pages = sorted(path.name for path in directory.glob("*.html"))
    harness = _HARNESS.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(WIDTHS))
    (directory / "_widths.html").write_text(harness, encoding="utf-8")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/_widths.html"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=2700,1000", "--dump-dom"]
        command = [chromium, *options, "--virtual-time-budget=600000", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    finally:
        server.shutdown()
        server.server_close()
        (directory / "_widths.html").unlink()
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    if found is None:
        raise RuntimeError(f"Chromium measured nothing: {done.stderr[-2000:]}")
    result = json.loads(found[1])
    return result["pages"], [tuple(each) for each in result["wrong"]]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages.widths", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="of the built pages")
    options = parser.parse_args()
    chromium = os.environ.get("KAFKAPROD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        parser.error("there is no Chromium: apt install chromium, or KAFKAPROD_CHROMIUM=FILE")
    count, wrong = measure(options.directory, chromium)
    for page, width, needed in wrong:
        print(f"{page} at {width} px: {needed} px wide")
    print(f"{count} pages at {len(WIDTHS)} widths from {WIDTHS[0]} to {WIDTHS[-1]} px: {len(wrong)} cut")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
