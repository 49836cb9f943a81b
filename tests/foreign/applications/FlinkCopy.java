import java.io.IOException;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Apache Flink in one process, sink EXACTLY_ONCE: copies topic "in" to "out". Ends with stdin.
 *  Starts from the checkpoint that its third argument names. */
public class FlinkCopy {
    public static void main(String[] args) throws Exception {
        Thread end = new Thread(FlinkCopy::endWithInput);
        end.setDaemon(true);
        end.start();
        Configuration options = new Configuration();
        options.setString("execution.checkpointing.interval", "500 ms");
        options.setString("execution.checkpointing.dir", "file://" + args[1]);
        options.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        options.setString("restart-strategy.type", "fixed-delay");
        options.setString("restart-strategy.fixed-delay.attempts", "1000");
        options.setString("restart-strategy.fixed-delay.delay", "1 s");
        if (args.length > 2) options.setString("execution.state-recovery.path", args[2]);
        StreamExecutionEnvironment job = StreamExecutionEnvironment.getExecutionEnvironment(options);
        job.setParallelism(2);
        KafkaSource<String> in = KafkaSource.<String>builder()
            .setBootstrapServers(args[0])
            .setTopics("in")
            .setGroupId("copy")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> out = KafkaSink.<String>builder()
            .setBootstrapServers(args[0])
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic("out")
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("copy")
            .setProperty("transaction.timeout.ms", "60000")
            .build();
        // Slow enough that there are some checkpoints.
        job.fromSource(in, WatermarkStrategy.noWatermarks(), "in")
            .map(row -> { Thread.sleep(2); return row; })
            .sinkTo(out);
        job.execute("copy");
    }

    private static void endWithInput() {
        try {
            while (System.in.read() >= 0) { }
        } catch (IOException error) {
            System.err.println(error);
        }
        System.exit(0);
    }
}
