import java.io.DataInputStream;
import java.io.BufferedInputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own Java producer; see benchmarks/peers/task.py for the arguments and the answer. Way: send.
 *
 * <p>Settings beyond the task's: batch.size 256 KiB, because its default of 16 KiB is documented as too small for
 * throughput; buffer.memory 64 MiB, so that 256 KiB batches of many partitions fit.
 */
final class Bench {
    private final Map<String, String> task = new HashMap<>();
    private final List<byte[]> keys = new ArrayList<>();
    private final List<byte[]> values = new ArrayList<>();
    private final List<Header> headers = new ArrayList<>();
    private final String[] topics;
    private final Properties settings = new Properties();
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    private final KafkaProducer<byte[], byte[]> producer;

    private Bench(String[] arguments) throws Exception {
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            task.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        readRecords(Path.of(task.get("records")));
        int count = number("topics");
        topics = new String[count];
        for (int i = 0; i < count; i++) {
            topics[i] = count == 1 ? task.get("topic") : task.get("topic") + "-" + i;
        }
        settings.put("acks", task.get("acks"));
        settings.put("enable.idempotence", number("idempotence") == 1 ? "true" : "false");
        settings.put("linger.ms", task.get("linger_ms"));
        settings.put("compression.type", task.get("compression"));
        settings.put("batch.size", number("batch_bytes") == 0 ? "262144" : task.get("batch_bytes"));
        settings.put("buffer.memory", number("buffer_bytes") == 0 ? "67108864" : task.get("buffer_bytes"));
        if (number("transactional") == 1) {
            settings.put("transactional.id", "benchmark");
        }
        Properties all = new Properties();
        if (!task.get("tls_ca").isEmpty()) {
            settings.put("security.protocol", "SSL");
            settings.put("ssl.truststore.type", "PEM");
            all.put("ssl.truststore.location", task.get("tls_ca"));
        }
        all.putAll(settings);
        all.put("bootstrap.servers", task.get("bootstrap"));
        producer = new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
        for (String topic : topics) {
            producer.partitionsFor(topic);
        }
        if (number("transactional") == 1) {
            producer.initTransactions();
        }
    }

    private int number(String name) {
        return Integer.parseInt(task.get(name));
    }

    private void readRecords(Path path) throws Exception {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(path), 1 << 20))) {
            for (int count = in.readInt(); count > 0; count--) {
                headers.add(new RecordHeader(new String(readString(in), StandardCharsets.UTF_8), readString(in)));
            }
            for (int count = in.readInt(); count > 0; count--) {
                keys.add(readString(in));
                values.add(readString(in));
            }
        }
    }

    private static byte[] readString(DataInputStream in) throws Exception {
        int length = in.readInt();
        return length < 0 ? null : in.readNBytes(length);
    }

    private ProducerRecord<byte[], byte[]> record(int index) {
        return new ProducerRecord<>(
            topics[index % topics.length], null, keys.get(index), values.get(index), headers.isEmpty() ? null : headers);
    }

    /** Send all records once; the far end's count tells whether all arrived. */
    private void sendRound() throws Exception {
        int count = values.size();
        if (task.get("results").equals("read")) {
            List<Future<RecordMetadata>> futures = new ArrayList<>(count);
            for (int i = 0; i < count; i++) {
                futures.add(producer.send(record(i)));
            }
            for (Future<RecordMetadata> future : futures) {
                if (future.get().offset() < -1) {
                    throw new IllegalStateException("an offset below -1");
                }
            }
            return;
        }
        long[] acknowledged = new long[1];
        Callback callback = task.get("results").equals("ignored") ? null : (metadata, error) -> {
            if (error != null) {
                failure.compareAndSet(null, error);
            }
            acknowledged[0]++;
        };
        for (int i = 0; i < count; i++) {
            producer.send(record(i), callback);
        }
    }

    /**
     * Send whole rounds for so long, and until the process has used so much CPU time: on a busy machine hot code is
     * compiled late.
     */
    private long rounds(double seconds, double cpuSeconds) throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        int threads = number("threads");
        long[] counts = new long[threads];
        Thread[] others = new Thread[threads];
        for (int i = 1; i < threads; i++) {
            int thread = i;
            others[i] = new Thread(() -> sendUntil(end, cpuSeconds, counts, thread));
            others[i].start();
        }
        sendUntil(end, cpuSeconds, counts, 0);
        for (int i = 1; i < threads; i++) {
            others[i].join();
        }
        flush();
        return Arrays.stream(counts).sum();
    }

    private void sendUntil(long end, double cpuSeconds, long[] counts, int thread) {
        try {
            do {
                if (number("transactional") == 1) {
                    producer.beginTransaction();
                }
                sendRound();
                if (number("transactional") == 1) {
                    producer.commitTransaction();
                }
                if (number("flush_rounds") == 1) {
                    producer.flush();
                }
                counts[thread]++;
            } while (System.nanoTime() < end || cpuSeconds() < cpuSeconds);
        } catch (Exception error) {
            failure.compareAndSet(null, error);
        }
    }

    private void flush() throws Exception {
        producer.flush();
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    /** Send evenly spaced records; latency counts from the time a record was to be sent. */
    private void pace(long count, ConcurrentLinkedQueue<Long> latencies) throws Exception {
        double nanosPerRecord = 1e9 / number("rate");
        int sampleEvery = number("sample_every");
        long started = System.nanoTime();
        long sent = 0;
        while (sent < count) {
            long due = Math.min(count, (long) ((System.nanoTime() - started) / nanosPerRecord) + 1);
            for (; sent < due; sent++) {
                Callback callback = null;
                if (sent % sampleEvery == 0) {
                    long dueNanos = started + (long) (sent * nanosPerRecord);
                    callback = (metadata, error) -> {
                        if (error != null) {
                            failure.compareAndSet(null, error);
                        }
                        latencies.add((System.nanoTime() - dueNanos) / 1000);
                    };
                }
                producer.send(record((int) (sent % values.size())), callback);
            }
            long pause = started + (long) (sent * nanosPerRecord) - System.nanoTime();
            if (nanosPerRecord <= 1_000_000) {
                pause = Math.max(pause, 1_000_000);
            }
            if (pause > 0) {
                LockSupport.parkNanos(pause);
            }
        }
        flush();
    }

    private static double cpuSeconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime() / 1e9;
    }

    private static String version() throws Exception {
        Properties about = new Properties();
        about.load(KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties"));
        return about.getProperty("version");
    }

    private static double maxRssMb() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Double.parseDouble(line.replaceAll("[^0-9]", "")) / 1024;
            }
        }
        return 0;
    }

    private void run() throws Exception {
        double seconds = Double.parseDouble(task.get("seconds"));
        double warmUp = Double.parseDouble(task.get("warm_up_s"));
        int rate = number("rate");
        ConcurrentLinkedQueue<Long> latencies = new ConcurrentLinkedQueue<>();
        long before;
        if (rate > 0) {
            before = Math.max(1, (long) (rate * warmUp));
            pace(before, new ConcurrentLinkedQueue<>());
        } else {
            before = rounds(warmUp, warmUp) * values.size();
        }
        long started = System.nanoTime();
        double cpu = cpuSeconds();
        long records;
        long transactions = 0;
        if (rate > 0) {
            records = Math.max(1, (long) (rate * seconds));
            pace(records, latencies);
        } else {
            records = rounds(seconds, 0) * values.size();
            transactions = number("transactional") * (before + records) / values.size();
        }
        double elapsed = (System.nanoTime() - started) / 1e9;
        cpu = cpuSeconds() - cpu;
        String shown = settings.entrySet().stream()
            .map(entry -> "\"" + entry.getKey() + "\": \"" + entry.getValue() + "\"")
            .sorted()
            .collect(Collectors.joining(", ", "{", "}"));
        String list = latencies.stream().map(String::valueOf).collect(Collectors.joining(", ", "[", "]"));
        System.out.printf(
            "{\"records\": %d, \"all_records\": %d, \"seconds\": %.6f, \"cpu_s\": %.6f, \"max_rss_mb\": %.1f, "
                + "\"version\": \"%s\", \"settings\": %s, \"transactions\": %d, \"latencies_us\": %s}%n",
            records, before + records, elapsed, cpu, maxRssMb(), version(), shown, transactions, list);
        producer.close();
    }

    public static void main(String[] arguments) throws Exception {
        new Bench(arguments).run();
    }
}
