import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the public options of the Java producer, one a line. */
public class OptionNames {
    public static void main(String[] arguments) {
        for (ConfigDef.ConfigKey option : ProducerConfig.configDef().configKeys().values()) {
            if (!option.internalConfig) {
                System.out.println(option.name);
            }
        }
    }
}
