// kafkajs, exactly once: copies topic "in" to "out", offsets in the transactions. Ends with stdin.
const { Kafka, logLevel } = require('kafkajs')

async function main () {
  const kafka = new Kafka({ brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING, retry: { retries: 50 } })
  const producer = kafka.producer({ transactionalId: 'copy-js', idempotent: true, maxInFlightRequests: 1 })
  const consumer = kafka.consumer({ groupId: 'copy-js', readUncommitted: false, sessionTimeout: 10000 })
  await producer.connect()
  const first = await producer.transaction() // fences the instance before, and ends what it left, before offsets are read
  await first.abort()
  await consumer.connect()
  await consumer.subscribe({ topics: ['in'], fromBeginning: true })
  process.stdin.resume()
  process.stdin.on('end', async () => { await consumer.disconnect(); await producer.disconnect(); process.exit(0) })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      for (let at = 0; at < batch.messages.length && isRunning() && !isStale(); at += 50) {
        const part = batch.messages.slice(at, at + 50)
        const last = part[part.length - 1].offset
        const transaction = await producer.transaction()
        try {
          // To one partition: where a leader dies, kafkajs sends nothing again to partitions whose new leader has answered
          // for others, and calls that success.
          const messages = part.map(({ key, value }) => ({ key, value, partition: batch.partition }))
          await transaction.send({ topic: 'out', messages })
          const offset = (BigInt(last) + 1n).toString()
          const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }]
          await transaction.sendOffsets({ consumerGroupId: 'copy-js', topics })
          await transaction.commit()
        } catch (error) {
          console.error(String(error))
          await transaction.abort().catch(() => {})
          throw error
        }
        resolveOffset(last)
        await heartbeat()
      }
    }
  })
}
main().catch((error) => { console.error(error); process.exit(1) })
