// sarama, exactly once: copies topic "in" to "out", offsets in the transactions. Ends with stdin.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const group = "copy"

// copier is a member's handler of one generation of the group; its claims share a producer, and take turns.
type copier struct {
	producer sarama.SyncProducer
	turn     sync.Mutex
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for row := range claim.Messages() {
		rows := []*sarama.ConsumerMessage{row}
		for len(rows) < 10 && len(claim.Messages()) > 0 {
			rows = append(rows, <-claim.Messages())
		}
		if err := c.copy(session, rows); err != nil {
			return err // ends the session; the next producer ends the transaction
		}
	}
	return nil
}

func (c *copier) copy(session sarama.ConsumerGroupSession, rows []*sarama.ConsumerMessage) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	time.Sleep(20 * time.Millisecond) // slow enough that processes die on the way
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	var copies []*sarama.ProducerMessage
	for _, row := range rows {
		key, value := sarama.ByteEncoder(row.Key), sarama.ByteEncoder(row.Value)
		copies = append(copies, &sarama.ProducerMessage{Topic: "out", Key: key, Value: value})
	}
	if err := c.producer.SendMessages(copies); err != nil {
		return err
	}
	member := sarama.NewConsumerGroupMetadataFromSession(session, group, nil)
	if err := c.producer.AddMessageToTxnWithGroupMetadata(rows[len(rows)-1], member, nil); err != nil {
		return err
	}
	return c.producer.CommitTxn()
}

// copyOneGeneration copies until the group rebalances or something fails.
func copyOneGeneration(servers []string, options *sarama.Config, members sarama.ConsumerGroup) error {
	producer, err := sarama.NewSyncProducer(servers, options)
	if err != nil {
		return err
	}
	defer producer.Close()
	return members.Consume(context.Background(), []string{"in"}, &copier{producer: producer})
}

func main() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	servers := strings.Split(os.Args[1], ",")
	options := sarama.NewConfig()
	options.Version = sarama.MaxVersion
	options.Net.MaxOpenRequests = 1
	options.Producer.Idempotent = true
	options.Producer.RequiredAcks = sarama.WaitForAll
	options.Producer.Return.Successes = true
	options.Producer.Transaction.ID = os.Args[2]
	options.Producer.Transaction.Timeout = 10 * time.Second
	options.Consumer.IsolationLevel = sarama.ReadCommitted
	options.Consumer.Offsets.AutoCommit.Enable = false
	options.Consumer.Offsets.Initial = sarama.OffsetOldest
	options.Consumer.Group.Session.Timeout = 10 * time.Second
	members, err := sarama.NewConsumerGroup(servers, group, options)
	if err != nil {
		log.Fatal(err)
	}
	for {
		if err := copyOneGeneration(servers, options, members); err != nil {
			log.Print(err)
		}
	}
}
