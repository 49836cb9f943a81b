import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/** Spring Kafka, transactions of its containers: copies topic "in" to "out"; each tenth row fails once, each hundredth
 *  three times, and is copied from the dead letter topic. Ends with stdin. */
@Configuration
@EnableKafka
public class SpringCopy {
    static Map<String, Object> servers;
    static String name;
    private final Map<Integer, Integer> failures = new HashMap<>();

    public static void main(String[] args) throws Exception {
        servers = Map.of("bootstrap.servers", args[0]);
        name = args[1];
        var context = new AnnotationConfigApplicationContext(SpringCopy.class);
        while (System.in.read() >= 0) { }
        context.close();
    }

    @KafkaListener(id = "copy", topics = "in", concurrency = "2")
    public void copy(ConsumerRecord<String, String> row) {
        kafkaTemplate().send("out", row.key(), row.value());
        int number = Integer.parseInt(row.value());
        if (number % 100 == 0 || number % 10 == 0 && isFirst(number)) {
            throw new IllegalStateException("row " + number);
        }
    }

    private synchronized boolean isFirst(int number) {
        return failures.merge(number, 1, Integer::sum) == 1;
    }

    @KafkaListener(id = "copy-dead", topics = "in-dlt")
    public void copyDead(ConsumerRecord<String, String> row) {
        kafkaTemplate().send("out", row.key(), row.value());
    }

    @Bean
    public KafkaTemplate<String, String> kafkaTemplate() {
        return new KafkaTemplate<>(producers());
    }

    @Bean
    public DefaultKafkaProducerFactory<String, String> producers() {
        var options = new HashMap<>(servers);
        options.put("transaction.timeout.ms", 10_000);
        var factory = new DefaultKafkaProducerFactory<>(options, new StringSerializer(), new StringSerializer());
        factory.setTransactionIdPrefix(name + "-");
        return factory;
    }

    @Bean
    public ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
        var options = new HashMap<>(servers);
        options.put("isolation.level", "read_committed");
        options.put("auto.offset.reset", "earliest");
        options.put("session.timeout.ms", 10_000);
        var text = new StringDeserializer();
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(options, () -> text, () -> text));
        factory.getContainerProperties().setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers()));
        var dead = new DeadLetterPublishingRecoverer(kafkaTemplate());
        factory.setAfterRollbackProcessor(
            new DefaultAfterRollbackProcessor<>(dead, new FixedBackOff(0, 2), kafkaTemplate(), true));
        return factory;
    }
}
