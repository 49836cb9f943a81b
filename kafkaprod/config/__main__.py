"""Print docs/configuration.md."""

import sys

from kafkaprod.config.documentation import configuration_page

sys.stdout.write(configuration_page())
