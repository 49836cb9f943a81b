import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.connect.source.SourceRecord;

/** Debezium's engine, at least once: copies the lines of a file to "out"; offsets are in Kafka. Ends with stdin. */
public class DebeziumCopy {
    private final KafkaProducer<String, String> producer;

    private DebeziumCopy(String servers) {
        producer = new KafkaProducer<>(Map.of("bootstrap.servers", servers), new StringSerializer(), new StringSerializer());
    }

    private void copy(
        List<ChangeEvent<SourceRecord, SourceRecord>> lines, RecordCommitter<ChangeEvent<SourceRecord, SourceRecord>> committer
    ) throws InterruptedException {
        try {
            for (var line : lines) {
                Future<RecordMetadata> sent = producer.send(new ProducerRecord<>("out", (String) line.value().value()));
                sent.get();
                committer.markProcessed(line);
            }
        } catch (ExecutionException error) {
            throw new IllegalStateException(error);
        }
        committer.markBatchFinished();
    }

    public static void main(String[] args) throws Exception {
        Properties options = new Properties();
        options.put("name", "lines");
        options.put("connector.class", "org.apache.kafka.connect.file.FileStreamSourceConnector");
        options.put("file", args[1]);
        options.put("topic", "lines");
        options.put("batch.size", "10");
        options.put("bootstrap.servers", args[0]);
        options.put("offset.storage", "org.apache.kafka.connect.storage.KafkaOffsetBackingStore");
        options.put("offset.storage.topic", "offsets");
        options.put("offset.storage.partitions", "1");
        options.put("offset.storage.replication.factor", args[2]);
        options.put("offset.flush.interval.ms", "0"); // after each batch
        DebeziumEngine<?> engine = DebeziumEngine.create(Connect.class)
            .using(options)
            .notifying(new DebeziumCopy(args[0])::copy)
            .using((success, message, error) -> System.err.println(message + " " + error))
            .build();
        var thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        while (System.in.read() >= 0) { }
        engine.close();
        thread.shutdown();
        System.exit(0);
    }
}
