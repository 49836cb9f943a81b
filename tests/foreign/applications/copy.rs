//! rust-rdkafka, exactly once: copies topic "in" to "out", offsets in the transactions. Ends with stdin.
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::{env, io, io::Read, process, thread, time::Duration};

const PATIENCE: Duration = Duration::from_secs(30);

fn copy(servers: &str, id: &str) -> KafkaResult<()> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("transactional.id", id)
        .set("transaction.timeout.ms", "10000")
        .create()?;
    producer.init_transactions(PATIENCE)?;
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", "copy")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("session.timeout.ms", "10000")
        .create()?;
    consumer.subscribe(&["in"])?;
    loop {
        let mut offsets = TopicPartitionList::new();
        for row in std::iter::from_fn(|| consumer.poll(Duration::from_millis(100))).take(50) {
            let row = row?;
            if offsets.count() == 0 {
                producer.begin_transaction()?;
            }
            let copied = BaseRecord::to("out").key(row.key().unwrap()).payload(row.payload().unwrap());
            producer.send(copied).map_err(|(error, _)| error)?;
            let next = Offset::Offset(row.offset() + 1);
            match offsets.find_partition("in", row.partition()) {
                Some(mut known) => known.set_offset(next)?,
                None => offsets.add_partition_offset("in", row.partition(), next)?,
            }
        }
        if offsets.count() > 0 {
            let member = consumer.group_metadata().unwrap();
            producer.send_offsets_to_transaction(&offsets, &member, PATIENCE)?;
            producer.commit_transaction(PATIENCE)?;
        }
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
    loop {
        // All over, from the committed offsets: the new producer ends what was open.
        eprintln!("{:?}", copy(&arguments[1], &arguments[2]).unwrap_err());
    }
}
