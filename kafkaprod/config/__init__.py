"""Options: every one declared once, checked once, documented from the declaration.

documentation       make the page docs/configuration.md from the table
typed_options       makes option_types.py
producer_config     a producer's configuration: checked, typed, immutable
option_types        the options of a producer as keyword arguments, for type hints
properties          Java `.properties` files
container           the memory for records where the user names no bound: a part of the container's
rules               what options mean together
topic_batching      how the batches of a topic are made: the producer's options and its own
producer_options    the table of a producer's options
topic_options       the kind of `topic_options`: options whose values differ by topic
kerberos_options    the options of a login with Kerberos (GSSAPI)
oauth_options       the options by which a client fetches OAuth tokens (KIP-768, KIP-1139)
connection_options  the options of any client: which servers, how to reach them, how to log in
host_patterns       which hosts a client may connect to: names, domains and networks
spellings           from the names users write to options: Kafka's, with underscores, librdkafka's
jaas                Java's `sasl.jaas.config`: a user and a password, a client of an OAuth endpoint, or Kerberos
option              the declaration of one option
addresses           the kind of `bootstrap_servers`: addresses as people write them
hook_kinds          the kinds of serializers and partitioners: the user's code, or names
kinds               the kinds of values options take
refused             names other clients know and this one refuses, each with what to do instead
secret_sources      which variables and files the options of others may name
secret              a text that no log shows: passwords and tokens in the configuration
"""

from kafkaprod.config.producer_config import OPTIONS, ProducerConfig, merge_options, options_for_topic
from kafkaprod.config.properties import parse_properties, read_properties
from kafkaprod.config.secret import Secret

__all__ = [
    "OPTIONS",
    "ProducerConfig",
    "Secret",
    "merge_options",
    "options_for_topic",
    "parse_properties",
    "read_properties",
]
