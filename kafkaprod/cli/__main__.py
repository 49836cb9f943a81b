"""Print docs/cli.md."""

import sys

from kafkaprod.cli.documentation import cli_page

sys.stdout.write(cli_page())
