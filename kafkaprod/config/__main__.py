"""Print docs/configuration.md, or with the argument `types` the source of option_types.py."""

import sys

from kafkaprod.config.documentation import configuration_page
from kafkaprod.config.typed_options import typed_options

sys.stdout.write(typed_options() if sys.argv[1:] == ["types"] else configuration_page())
