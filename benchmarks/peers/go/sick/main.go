// Command sick is franz-go beside a sick broker: BOOTSTRAP TOPIC MEMORY RATE BYTES FROM_S SECONDS AFTER_S [PARTITION...].
// Its options are the defaults, but for its memory, a linger of 5 ms, and no compression, as the other clients have them.
//
// It prints "ready", and sends from the next line of its input on, which names the partitions that count; none: all do. To
// the partitions of its arguments in turn, without them as the client chooses. At the end it prints what became of the
// records that were to be sent from FROM_S for SECONDS, and waits for nothing.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type figures struct {
	Version   string    `json:"version"`
	Longest   float64   `json:"longest_ms"`
	Latencies []float64 `json:"latencies_ms"`
}

type run struct {
	client     *kgo.Client
	topic      string
	rate       float64
	value      []byte
	partitions []int32
	counted    map[int32]bool
	started    time.Time
	from, end  time.Duration
	after      time.Duration
	lock       sync.Mutex
	seen       figures
}

func main() {
	bootstrap, memory := os.Args[1], int(number(os.Args[3]))
	r := &run{topic: os.Args[2], rate: number(os.Args[4]), counted: map[int32]bool{}}
	r.value = []byte(strings.Repeat("x", int(number(os.Args[5]))))
	r.from, r.after = seconds(os.Args[6]), seconds(os.Args[8])
	r.end = r.from + seconds(os.Args[7])
	r.seen = figures{Version: version(), Latencies: []float64{}}
	for _, text := range os.Args[9:] {
		r.partitions = append(r.partitions, int32(number(text)))
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.MaxBufferedBytes(memory),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	if len(r.partitions) > 0 {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := kgo.NewClient(options...)
	if err == nil {
		err = client.Ping(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r.client = client
	fmt.Println("ready")
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	for _, text := range strings.Fields(line) {
		r.counted[int32(number(text))] = true
	}
	r.started = time.Now()
	go r.sendAll()
	time.Sleep(r.end + r.after)
	r.lock.Lock()
	out, _ := json.Marshal(r.seen)
	fmt.Println(string(out))
	os.Exit(0)
}

func (r *run) sendAll() {
	for i := int64(0); ; i++ {
		due := time.Duration(float64(i) / r.rate * 1e9)
		now := time.Since(r.started)
		if late := now - due; late > time.Second { // what a wait has missed is left out
			i += int64(late.Seconds()*r.rate) - 1
			continue
		}
		if due > now {
			time.Sleep(due - now)
		}
		if due >= r.end {
			return
		}
		r.send(i, due)
	}
}

func (r *run) send(i int64, due time.Duration) {
	record := &kgo.Record{Topic: r.topic, Value: r.value}
	if len(r.partitions) > 0 {
		record.Partition = r.partitions[i%int64(len(r.partitions))]
	}
	counts := due >= r.from && (len(r.counted) == 0 || r.counted[record.Partition])
	began := time.Now()
	r.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
		now := time.Since(r.started)
		if err != nil || !counts || now >= r.end+r.after {
			return
		}
		r.lock.Lock()
		defer r.lock.Unlock()
		r.seen.Latencies = append(r.seen.Latencies, milliseconds(now-due))
	})
	if counts {
		r.lock.Lock()
		defer r.lock.Unlock()
		r.seen.Longest = max(r.seen.Longest, milliseconds(time.Since(began)))
	}
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration.Microseconds()) / 1000
}

func seconds(text string) time.Duration {
	return time.Duration(number(text) * 1e9)
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}
