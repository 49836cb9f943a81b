import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer with its default options for the benchmark of links: BOOTSTRAP TOPIC SECONDS EVERY RATE FROM_S.
 *
 * <p>It sends 1,000-byte values with keys, prints what became of every EVERY-th record, and ends without waiting for the
 * rest.
 */
final class Link {
    private static final int VALUE_BYTES = 1000;
    private static final long PAUSE_NS = 1_000_000;

    private final ConcurrentLinkedQueue<Long> times = new ConcurrentLinkedQueue<>();
    private final Map<String, Long> failed = new ConcurrentHashMap<>();
    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final int every;
    private final double rate;
    private final long from;

    private Link(String[] arguments) {
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", arguments[0]), new ByteArraySerializer(), new ByteArraySerializer());
        topic = arguments[1];
        every = Integer.parseInt(arguments[3]);
        rate = Double.parseDouble(arguments[4]);
        from = System.nanoTime() + (long) (Double.parseDouble(arguments[5]) * 1e9);
    }

    private void sendAll() {
        byte[] value = new byte[VALUE_BYTES];
        Arrays.fill(value, (byte) 'x');
        long started = System.nanoTime();
        for (long number = 0;; number++) {
            while (rate > 0 && number >= (System.nanoTime() - started) / 1e9 * rate) {
                LockSupport.parkNanos(PAUSE_NS);
            }
            Callback callback = null;
            if (number % every == 0) {
                long sent = System.nanoTime();
                callback = (metadata, error) -> note(sent, error);
            }
            producer.send(new ProducerRecord<>(topic, Long.toString(number).getBytes(), value), callback);
        }
    }

    private void note(long sent, Exception error) {
        long now = System.nanoTime();
        if (error != null) {
            failed.merge(error.getClass().getSimpleName(), (long) every, Long::sum);
        } else if (now >= from) {
            times.add(now - sent);
        }
    }

    private static double quantile(long[] sorted, double part) {
        return sorted.length == 0 ? -1 : sorted[(int) (sorted.length * part)] / 1e6;
    }

    public static void main(String[] arguments) throws Exception {
        Link link = new Link(arguments);
        Thread thread = new Thread(link::sendAll);
        thread.setDaemon(true);
        thread.start();
        Thread.sleep((long) (Double.parseDouble(arguments[2]) * 1000));
        long[] sorted = link.times.stream().mapToLong(Long::longValue).sorted().toArray();
        Properties about = new Properties();
        about.load(KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties"));
        String shown = link.failed.entrySet().stream()
            .map(entry -> "\"" + entry.getKey() + "\": " + entry.getValue())
            .collect(Collectors.joining(", ", "{", "}"));
        System.out.printf(
            "{\"version\": \"%s\", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"failed\": %s}%n",
            about.getProperty("version"), quantile(sorted, 0.5), quantile(sorted, 0.99), shown);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
