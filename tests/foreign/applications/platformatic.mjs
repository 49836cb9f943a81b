// @platformatic/kafka, exactly once: copies topic "in" to "out", offsets in the transactions. Ends with stdin.
import { Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { setTimeout } from 'node:timers/promises'

const options = { clientId: 'copy', bootstrapBrokers: process.argv[2].split(','), retries: 20, retryDelay: 250 }

async function transact (producer, consumer, messages) {
  const transaction = await producer.beginTransaction()
  await transaction.addConsumer(consumer)
  await transaction.send({ messages: messages.map(({ key, value }) => ({ topic: 'out', key, value })) })
  const last = new Map(messages.map((message) => [message.partition, message]))
  for (const message of last.values()) await transaction.addOffset(message) // calls at one time are taken for one call
  await transaction.commit()
}

async function copy () {
  // Without an id of -1 it claims to be producer 0, and is refused where the transactional id has one already.
  const known = { transactionalId: 'copy', producerId: -1n, producerEpoch: -1 }
  const producer = new Producer({ ...options, ...known, idempotent: true, acks: -1, serializers: stringSerializers })
  // A classic group: in one of KIP-848 its transactions name generation 0, and no epoch of the member.
  const consumer = new Consumer({ ...options, groupId: 'copy', sessionTimeout: 10000, deserializers: stringDeserializers })
  try {
    const first = await producer.beginTransaction() // fences the instance before, and ends what it left, before offsets are read
    await first.cancel()
    const stream = await consumer.consume({ topics: ['in'], mode: 'committed', fallbackMode: 'earliest', autocommit: false })
    const waiting = []
    let failure
    stream.on('data', (message) => waiting.push(message))
    stream.on('error', (error) => { failure = error })
    while (!failure) {
      if (waiting.length) await transact(producer, consumer, waiting.splice(0, 50))
      else await setTimeout(5)
    }
    throw failure
  } finally {
    await consumer.close(true).catch(() => {})
    await producer.close(true).catch(() => {})
  }
}

process.stdin.resume()
process.stdin.on('end', () => process.exit(0))
for (;;) await copy().catch((error) => console.error(error)) // all over, from the committed offsets
