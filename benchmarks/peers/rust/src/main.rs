//! rskafka for the benchmarks; see benchmarks/peers/task.py for the arguments and the answer.
//!
//! Ways: `send`, its `BatchProducer`, one record a call, as many unacknowledged as a round has; `produce`, a vector of
//! records a call to `PartitionClient`, five calls at a time for each partition. rskafka has no partitioner (records are
//! spread over the partitions by a hash of their key, here), no idempotence and only acks=all; its own benchmark uses
//! batches of a megabyte.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};
use rskafka::client::ClientBuilder;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::producer::aggregator::RecordAggregator;
use rskafka::client::producer::{BatchProducer, BatchProducerBuilder};
use rskafka::record::Record;

type Error = Box<dyn std::error::Error + Send + Sync>;

const DEFAULT_BATCH_BYTES: usize = 1_000_000;
const CALLS_AT_A_TIME: usize = 5;

/// What one partition is sent in a round.
struct Partition {
    client: Arc<PartitionClient>,
    producer: BatchProducer<RecordAggregator>,
    records: Vec<Record>,
}

struct Task(HashMap<String, String>);

impl Task {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Result<usize, Error> {
        Ok(self.text(name).parse()?)
    }

    fn seconds(&self, name: &str) -> Result<Duration, Error> {
        Ok(Duration::from_secs_f64(self.text(name).parse()?))
    }

    fn batch_bytes(&self) -> Result<usize, Error> {
        Ok(match self.number("batch_bytes")? {
            0 => DEFAULT_BATCH_BYTES,
            size => size,
        })
    }

    fn compression(&self) -> Result<Compression, Error> {
        Ok(match self.text("compression") {
            "none" => Compression::NoCompression,
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => return Err(format!("no codec {other}").into()),
        })
    }

    fn topics(&self) -> Result<Vec<String>, Error> {
        let topic = self.text("topic");
        Ok(match self.number("topics")? {
            1 => vec![topic.to_owned()],
            count => (0..count).map(|index| format!("{topic}-{index}")).collect(),
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let pairs = std::env::args().skip(1);
    let task = Task(
        pairs
            .filter_map(|pair| {
                pair.split_once('=')
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
            })
            .collect(),
    );
    if task.text("acks") != "all" || task.number("threads")? != 1 {
        return Err("rskafka runs with acks=all and one task a partition".into());
    }
    let partitions = connect(&task).await?;
    let warm_up = rounds(&task, &partitions, task.seconds("warm_up_s")?).await?;
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let records = rounds(&task, &partitions, task.seconds("seconds")?).await?;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let max_rss_mb = max_rss_mb()?;
    println!(
        "{{\"records\": {records}, \"all_records\": {}, \"seconds\": {seconds}, \"cpu_s\": {cpu}, \
         \"max_rss_mb\": {max_rss_mb}, \"version\": \"0.6.0\", \"settings\": {{\"linger\": \"{} ms\", \
         \"max_batch_size\": \"{}\", \"compression\": \"{}\"}}}}",
        records + warm_up,
        task.text("linger_ms"),
        task.batch_bytes()?,
        task.text("compression"),
    );
    Ok(())
}

async fn connect(task: &Task) -> Result<Vec<Partition>, Error> {
    let brokers = task.text("bootstrap").split(',').map(str::to_owned).collect();
    let client = ClientBuilder::new(brokers).build().await?;
    let names = task.topics()?;
    let mut partitions = Vec::new();
    let mut places = HashMap::new();
    for topic in client
        .list_topics()
        .await?
        .into_iter()
        .filter(|topic| names.contains(&topic.name))
    {
        for index in topic.partitions {
            let client = Arc::new(
                client
                    .partition_client(topic.name.clone(), index, UnknownTopicHandling::Error)
                    .await?,
            );
            let producer = BatchProducerBuilder::new(Arc::clone(&client))
                .with_linger(Duration::from_millis(task.number("linger_ms")? as u64))
                .with_compression(task.compression()?)
                .build(RecordAggregator::new(task.batch_bytes()?));
            places
                .entry(topic.name.clone())
                .or_insert_with(Vec::new)
                .push(partitions.len());
            partitions.push(Partition {
                client,
                producer,
                records: Vec::new(),
            });
        }
    }
    for (index, record) in read_records(task.text("records"))?.into_iter().enumerate() {
        let places = &places[&names[index % names.len()]];
        let mut hasher = DefaultHasher::new();
        record.key.hash(&mut hasher);
        let hash = if record.key.is_some() {
            hasher.finish() as usize
        } else {
            index
        };
        partitions[places[hash % places.len()]].records.push(record);
    }
    Ok(partitions)
}

/// Send whole rounds until the time has passed; return how many records that were.
async fn rounds(task: &Task, partitions: &[Partition], least: Duration) -> Result<usize, Error> {
    let (started, mut sent) = (Instant::now(), 0);
    let (is_single, compression, batch_bytes) = (task.text("way") == "send", task.compression()?, task.batch_bytes()?);
    while sent == 0 || started.elapsed() < least {
        let sending = partitions.iter().map(|partition| async move {
            if is_single {
                send_each(partition).await
            } else {
                send_batches(partition, compression, batch_bytes).await
            }
        });
        for outcome in futures::future::join_all(sending).await {
            sent += outcome?;
        }
    }
    Ok(sent)
}

async fn send_each(partition: &Partition) -> Result<usize, Error> {
    let mut outcomes = FuturesUnordered::new();
    for record in &partition.records {
        outcomes.push(partition.producer.produce(now(record)));
    }
    while let Some(outcome) = outcomes.next().await {
        outcome?;
    }
    Ok(partition.records.len())
}

async fn send_batches(partition: &Partition, compression: Compression, batch_bytes: usize) -> Result<usize, Error> {
    let mut batches = vec![Vec::new()];
    let mut bytes = 0;
    for record in &partition.records {
        bytes += record.approximate_size();
        if bytes > batch_bytes {
            batches.push(Vec::new());
            bytes = record.approximate_size();
        }
        batches.last_mut().expect("there is a first one").push(now(record));
    }
    let mut outcomes = stream::iter(batches.into_iter().filter(|batch| !batch.is_empty()))
        .map(|batch| partition.client.produce(batch, compression))
        .buffer_unordered(CALLS_AT_A_TIME);
    while let Some(outcome) = outcomes.next().await {
        outcome?;
    }
    Ok(partition.records.len())
}

fn now(record: &Record) -> Record {
    Record {
        timestamp: Utc::now(),
        ..record.clone()
    }
}

fn read_records(path: &str) -> Result<Vec<Record>, Error> {
    let data = std::fs::read(path)?;
    let rest = &mut data.as_slice();
    let mut headers = BTreeMap::new();
    for _ in 0..read_number(rest)? {
        let name = String::from_utf8(read_string(rest)?.unwrap_or_default())?;
        headers.insert(name, read_string(rest)?.unwrap_or_default());
    }
    let mut records = Vec::new();
    for _ in 0..read_number(rest)? {
        let (key, value) = (read_string(rest)?, read_string(rest)?);
        records.push(Record {
            key,
            value,
            headers: headers.clone(),
            timestamp: Utc::now(),
        });
    }
    Ok(records)
}

fn read_number(rest: &mut &[u8]) -> Result<i32, Error> {
    let (head, tail) = rest.split_at(4);
    *rest = tail;
    Ok(i32::from_be_bytes(head.try_into()?))
}

fn read_string(rest: &mut &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let length = read_number(rest)?;
    if length < 0 {
        return Ok(None);
    }
    let (head, tail) = rest.split_at(length as usize);
    *rest = tail;
    Ok(Some(head.to_vec()))
}

/// CPU seconds of this process, user and system.
fn cpu_seconds() -> f64 {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Largest resident set in MiB; not from getrusage, which also counts the process this one was forked from.
fn max_rss_mb() -> Result<f64, Error> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let (_, after) = status.split_once("VmHWM:").ok_or("no VmHWM")?;
    Ok(after.split_whitespace().next().ok_or("no number")?.parse::<f64>()? / 1024.0)
}
