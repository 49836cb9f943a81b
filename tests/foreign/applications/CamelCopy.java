import java.util.Properties;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.kafka.KafkaConstants;
import org.apache.camel.component.kafka.consumer.KafkaManualCommit;
import org.apache.camel.main.Main;
import org.apache.camel.processor.idempotent.kafka.KafkaIdempotentRepository;

/** Apache Camel, at least once: copies topic "in" to "out", and commits each row that is copied or was copied before,
 *  as topic "copied" says. Ends by SIGTERM. */
public class CamelCopy extends RouteBuilder {
    private static final String IN = "kafka:in?brokers=%s&groupId=copy&consumersCount=2&autoOffsetReset=earliest"
        + "&autoCommitEnable=false&allowManualCommit=true&breakOnFirstError=true&sessionTimeoutMs=10000";
    private final String servers;

    private CamelCopy(String servers) {
        this.servers = servers;
    }

    public static void main(String[] args) throws Exception {
        Main main = new Main();
        main.configure().addRoutesBuilder(new CamelCopy(args[0]));
        main.run();
    }

    @Override
    public void configure() {
        // Marked as copied after it was: marked before, a row would be lost with the process that was about to copy it.
        from(String.format(IN, servers))
            .idempotentConsumer(body(), copied()).eager(false).completionEager(true)
                .to("kafka:out?synchronous=true&brokers=" + servers)
            .end()
            .process(row -> row.getMessage().getHeader(KafkaConstants.MANUAL_COMMIT, KafkaManualCommit.class).commit());
    }

    private KafkaIdempotentRepository copied() {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", servers);
        Properties writing = new Properties();
        writing.put("bootstrap.servers", servers);
        writing.put("acks", "all"); // its default is 1
        return new KafkaIdempotentRepository("copied", reading, writing, 10_000, 100);
    }
}
