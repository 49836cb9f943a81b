// Sends numbered records to the partitions of a topic, in turn, until stdin ends, and prints what was acknowledged.
//
//	franz-go-writer SERVERS TOPIC PARTITIONS -> lines "PARTITION NUMBER"; errors go to stderr
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	partitions, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(100_000),
		kgo.RecordDeliveryTimeout(120*time.Second),
		kgo.ProduceRequestTimeout(3*time.Second),
		kgo.MetadataMinAge(100*time.Millisecond),
		// A broker that dies between accept and its first answer looks like a missing login: records fail at once.
		kgo.AlwaysRetryEOF(),
	)
	if err != nil {
		panic(err)
	}
	var lock sync.Mutex
	output := bufio.NewWriter(os.Stdout)
	var stop sync.WaitGroup
	stopping := make(chan struct{})
	stop.Add(1)
	go func() {
		defer stop.Done()
		for number := 0; ; number++ {
			select {
			case <-stopping:
				return
			case <-time.After(5 * time.Millisecond):
			}
			for partition := 0; partition < partitions; partition++ {
				value := strconv.Itoa(number)
				record := &kgo.Record{Topic: os.Args[2], Partition: int32(partition), Value: []byte(value)}
				client.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
					lock.Lock()
					defer lock.Unlock()
					if err != nil {
						fmt.Fprintln(os.Stderr, err)
						return
					}
					fmt.Fprintln(output, sent.Partition, value)
				})
			}
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(stopping)
	stop.Wait()
	if err := client.Flush(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	client.Close()
	output.Flush()
}
