import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer beside a sick broker: BOOTSTRAP TOPIC MEMORY RATE BYTES FROM_S SECONDS AFTER_S [PARTITION...].
 *
 * <p>It prints "ready", and sends from the next line of its input on, which names the partitions that count; none: all
 * do. To the partitions of its arguments in turn, without them as the producer chooses. At the end it prints what became
 * of the records that were to be sent from FROM_S for SECONDS, and waits for nothing.
 */
final class Sick {
    private final ConcurrentLinkedQueue<Long> latencies = new ConcurrentLinkedQueue<>();
    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final double rate;
    private final byte[] value;
    private final List<Integer> partitions = new ArrayList<>();
    private final Set<Integer> counted = new HashSet<>();
    private final long warmNs;
    private final long measuredNs;
    private final long afterNs;
    private long started;
    private volatile long longestNs;

    private Sick(String[] arguments) {
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", arguments[0], "buffer.memory", arguments[2], "linger.ms", "5"),
            new ByteArraySerializer(), new ByteArraySerializer());
        topic = arguments[1];
        rate = Double.parseDouble(arguments[3]);
        value = new byte[Integer.parseInt(arguments[4])];
        Arrays.fill(value, (byte) 'x');
        warmNs = nanoseconds(arguments[5]);
        measuredNs = nanoseconds(arguments[6]);
        afterNs = nanoseconds(arguments[7]);
        for (int i = 8; i < arguments.length; i++) {
            partitions.add(Integer.valueOf(arguments[i]));
        }
    }

    private static long nanoseconds(String seconds) {
        return (long) (Double.parseDouble(seconds) * 1e9);
    }

    private void sendAll() {
        for (long number = 0;; number++) {
            long due = started + (long) (number / rate * 1e9);
            long now = System.nanoTime();
            if (now - due > 1_000_000_000L) {    // what a wait has missed is left out
                number += (long) ((now - due) / 1e9 * rate) - 1;
                continue;
            }
            while ((now = System.nanoTime()) < due) {
                LockSupport.parkNanos(due - now);
            }
            if (due - started >= warmNs + measuredNs) {
                return;
            }
            send(number, due);
        }
    }

    private void send(long number, long due) {
        Integer partition = partitions.isEmpty() ? null : partitions.get((int) (number % partitions.size()));
        boolean counts = due - started >= warmNs && (counted.isEmpty() || counted.contains(partition));
        long began = System.nanoTime();
        producer.send(new ProducerRecord<>(topic, partition, null, value), counts ? (metadata, error) -> {
            long now = System.nanoTime();
            if (error == null && now - started < warmNs + measuredNs + afterNs) {
                latencies.add(now - due);
            }
        } : null);
        if (counts) {
            longestNs = Math.max(longestNs, System.nanoTime() - began);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Sick sick = new Sick(arguments);
        sick.producer.partitionsFor(sick.topic);
        System.out.println("ready");
        String line = new BufferedReader(new InputStreamReader(System.in)).readLine();
        Arrays.stream(line.split(" ")).filter(text -> !text.isEmpty()).map(Integer::valueOf).forEach(sick.counted::add);
        sick.started = System.nanoTime();
        Thread thread = new Thread(sick::sendAll);
        thread.setDaemon(true);
        thread.start();
        Thread.sleep((sick.warmNs + sick.measuredNs + sick.afterNs) / 1_000_000);
        Properties about = new Properties();
        about.load(KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties"));
        String shown = sick.latencies.stream()
            .map(each -> String.format(Locale.ROOT, "%.3f", each / 1e6))
            .collect(Collectors.joining(", ", "[", "]"));
        System.out.printf(
            Locale.ROOT, "{\"version\": \"%s\", \"longest_ms\": %.3f, \"latencies_ms\": %s}%n",
            about.getProperty("version"), sick.longestNs / 1e6, shown);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
