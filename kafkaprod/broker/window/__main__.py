"""The process of the window: options in a line of JSON on stdin, its port in one on stdout. It ends with its stdin."""

from __future__ import annotations

import os
import signal
import sys
import threading

from kafkaprod.broker.embedding.children import end_with_parent
from kafkaprod.broker.embedding.lines import NUMBER, JsonLines
from kafkaprod.broker.window.serving import WindowServer
from kafkaprod.broker.window.sources import AskedBrokers


def main() -> int:
    """Serve until stdin ends; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes stdin
    parent_pid = os.getppid()
    end_with_parent(parent_pid)
    lines = JsonLines(sys.stdin, sys.stdout)
    options = lines.receive()
    if options is None:
        return 1
    number = options.pop(NUMBER)
    try:
        sources = AskedBrokers(options["paths"])
        server = WindowServer(options["host"], options["port"], sources, options["token"], options["about"])
    except OSError as error:
        lines.reply(number, {"error": f"{options['host']}:{options['port']}: {error}"})
        return 1
    threading.Thread(target=server.serve_forever, args=(0.5,), name="kafkaprod-window", daemon=True).start()
    lines.reply(number, {"port": server.port})
    while (line := lines.receive()) is not None:
        server.about = line["about"]
        sources.set_paths(line["paths"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
