import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;

/** Kafka Streams, exactly once: copies topic "in" to "out", and the count of each key to "counts". Ends with stdin. */
public class Copy {
    public static void main(String[] args) throws Exception {
        Properties options = new Properties();
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, "copy");
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        options.put(StreamsConfig.STATE_DIR_CONFIG, args[1]);
        options.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, args[2]);
        options.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        options.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        options.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        options.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        options.put("statestore.cache.max.bytes", "0"); // each count is sent
        options.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> rows = builder.stream("in");
        rows.to("out");
        rows.groupByKey().count().toStream().mapValues(String::valueOf).to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), options);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println(error);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close(Duration.ofSeconds(20));
    }
}
