"""The user's code on a record's way.

chain             runs them in order
partitioners      a key to a partition
serializers       objects to bytes
java_serializers  the bytes of Kafka's own serializers in Java
opentelemetry     traces and metrics by OpenTelemetry
interceptors      see each record before it is sent and after its outcome
log_handler       log lines as records
reports           a report of each record with key, value, headers and latency
rate_limit        a bound of records and bytes a second
"""
