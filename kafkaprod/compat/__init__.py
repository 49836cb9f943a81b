"""Other clients' producer interfaces over kafkaprod: change the import, and the program runs on this engine.

Each is layered over the public interface (`Producer`, `AsyncProducer`, their errors) and imports nothing else of the
package. Consumers and admin clients come from the original package, if it is installed.

aiokafka         from kafkaprod.compat.aiokafka import AIOKafkaProducer
confluent_kafka  from kafkaprod.compat.confluent_kafka import Producer
kafka_python     from kafkaprod.compat.kafka_python import KafkaProducer
originals        attributes that the original package has and a producer does not need
translation      what kafka-python and aiokafka do alike: errors become the original's
"""
