"""Options: every one declared once, checked once, documented from the declaration.

producer_options.py   the table (with connection_options.py)     kinds.py        types and ranges of values
rules.py              conditions between options                 spellings.py    the names users write
producer_config.py    the result                                 refused.py      names with no equivalent, and advice
properties.py         Java's .properties files                   documentation.py  docs/configuration.md
option_types.py       options as keyword arguments, for editors  typed_options.py  makes it
"""

from kafkaprod.config.producer_config import OPTIONS, ProducerConfig, merge_options
from kafkaprod.config.properties import parse_properties, read_properties
from kafkaprod.config.secret import Secret

__all__ = ["OPTIONS", "ProducerConfig", "Secret", "merge_options", "parse_properties", "read_properties"]
