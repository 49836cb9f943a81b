// Command link is franz-go for the benchmark of links: BOOTSTRAP TOPIC SECONDS EVERY RATE FROM_S. Its options are the
// defaults, but without compression, which the other clients do not have by default.
// It sends 1,000-byte values with keys, prints what became of every EVERY-th record, and ends without waiting for the rest.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type figures struct {
	Version string           `json:"version"`
	P50     float64          `json:"p50_ms"`
	P99     float64          `json:"p99_ms"`
	Failed  map[string]int64 `json:"failed"`
}

type outcomes struct {
	lock  sync.Mutex
	times []float64
	found map[string]int64
}

func main() {
	bootstrap, topic, seconds := os.Args[1], os.Args[2], number(os.Args[3])
	every, rate, from := int64(number(os.Args[4])), number(os.Args[5]), number(os.Args[6])
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ProducerBatchCompression(kgo.NoCompression())}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	seen := &outcomes{found: map[string]int64{}}
	started := time.Now()
	go sendAll(client, topic, every, rate, started.Add(time.Duration(from*1e9)), seen)
	time.Sleep(time.Duration(seconds * 1e9))
	seen.lock.Lock()
	slices.Sort(seen.times)
	out, _ := json.Marshal(figures{version(), quantile(seen.times, 0.5), quantile(seen.times, 0.99), seen.found})
	fmt.Println(string(out))
	os.Exit(0)
}

func sendAll(client *kgo.Client, topic string, every int64, rate float64, from time.Time, seen *outcomes) {
	value := []byte(strings.Repeat("x", 1000))
	started := time.Now()
	for i := int64(0); ; i++ {
		for rate > 0 && float64(i) >= time.Since(started).Seconds()*rate {
			time.Sleep(time.Millisecond)
		}
		var promise func(*kgo.Record, error)
		if i%every == 0 {
			sent := time.Now()
			promise = func(_ *kgo.Record, err error) { seen.note(sent, from, err, every) }
		}
		record := &kgo.Record{Topic: topic, Key: []byte(strconv.FormatInt(i, 10)), Value: value}
		client.Produce(context.Background(), record, promise)
	}
}

func (o *outcomes) note(sent, from time.Time, err error, every int64) {
	now := time.Now()
	o.lock.Lock()
	defer o.lock.Unlock()
	if err != nil {
		o.found[err.Error()] += every
	} else if now.After(from) {
		o.times = append(o.times, float64(now.Sub(sent).Microseconds())/1000)
	}
}

func quantile(times []float64, part float64) float64 {
	if len(times) == 0 {
		return -1
	}
	return times[int(float64(len(times))*part)]
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
