import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.connect.runtime.distributed.DistributedHerder;

/** A worker of Kafka Connect, distributed, exactly-once source: copies the lines of two files to "out".
 *  Ends with stdin. */
public class ConnectCopy {
    public static void main(String[] args) throws Exception {
        Map<String, String> worker = new HashMap<>();
        worker.put("bootstrap.servers", args[0]);
        worker.put("group.id", "connect");
        worker.put("exactly.once.source.support", "enabled");
        worker.put("key.converter", "org.apache.kafka.connect.storage.StringConverter");
        worker.put("value.converter", "org.apache.kafka.connect.storage.StringConverter");
        for (String store : new String[] {"config", "offset", "status"}) {
            worker.put(store + ".storage.topic", "connect-" + store);
            worker.put(store + ".storage.replication.factor", args[2]);
        }
        worker.put("listeners", "http://127.0.0.1:0");
        worker.put("session.timeout.ms", "10000");
        worker.put("scheduled.rebalance.max.delay.ms", "1000");
        Connect<DistributedHerder> connect = new ConnectDistributed().startConnect(worker);
        for (String half : new String[] {"even", "odd"}) { // so that each of two workers has a task
            Map<String, String> connector = new HashMap<>();
            connector.put("name", half);
            connector.put("connector.class", "org.apache.kafka.connect.file.FileStreamSourceConnector");
            connector.put("file", args[1] + "/" + half);
            connector.put("topic", "out");
            connector.put("batch.size", "10"); // and each batch is a transaction
            connector.put("transaction.boundary", "poll");
            connector.put("exactly.once.support", "required");
            // Refused if another worker leads, or if the connector is there.
            connect.herder().putConnectorConfig(half, connector, false, (error, done) -> System.err.println(error));
        }
        while (System.in.read() >= 0) { }
        connect.stop();
        connect.awaitStop();
    }
}
