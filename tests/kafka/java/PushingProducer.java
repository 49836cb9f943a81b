import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends each line of standard input to a topic and pushes its metrics (KIP-714), as a Java producer does by default. */
public class PushingProducer {
    public static void main(String[] arguments) throws Exception {
        Properties options = new Properties();
        options.put("bootstrap.servers", arguments[0]);
        options.put("client.id", "java");
        options.put("key.serializer", StringSerializer.class.getName());
        options.put("value.serializer", StringSerializer.class.getName());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(options)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                producer.send(new ProducerRecord<>(arguments[1], line)).get();
                System.out.println(line);
            }
        }
    }
}
