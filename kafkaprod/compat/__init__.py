"""Other clients' producer interfaces over kafkaprod: change the import, and the program runs on this engine.

`install("confluent_kafka")` needs no change of an import: it puts the producer into the original package, for
frameworks and programs that import that. Each interface is layered over the public one (`Producer`, `AsyncProducer`,
their errors) and imports nothing else of the package. Consumers and admin clients come from the original package, if it
is installed.

installation     this engine's producers in place of the originals': install(), uninstall()
aiokafka         from kafkaprod.compat.aiokafka import AIOKafkaProducer
confluent_kafka  from kafkaprod.compat.confluent_kafka import Producer
kafka_python     from kafkaprod.compat.kafka_python import KafkaProducer
known_cluster    what a producer knows of its cluster, by the names of other clients
submodules       modules of the original package under the names here
agents           what a tracing agent has put around an original's producer, put around this engine's
originals        attributes that the original package has and a producer does not need
writes           writes that happen once, with each original's own call
translation      what kafka-python and aiokafka do alike: errors become the original's
"""

from kafkaprod.compat import submodules
from kafkaprod.compat.installation import install, uninstall

__all__ = ["install", "uninstall"]

submodules.offer()
