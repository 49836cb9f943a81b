"""Other clients' producer interfaces over kafkaprod: change the import, and the program runs on this engine.

    kafka_python      from kafkaprod.compat.kafka_python import KafkaProducer
    confluent_kafka   from kafkaprod.compat.confluent_kafka import Producer
    aiokafka          from kafkaprod.compat.aiokafka import AIOKafkaProducer

Each is layered over the public interface (`Producer`, `AsyncProducer`, their errors) and imports nothing else of the
package. Consumers and admin clients come from the original package, if it is installed.
"""
