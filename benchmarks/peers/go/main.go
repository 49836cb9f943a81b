// Command client is franz-go for the benchmarks; see benchmarks/peers/task.py for the arguments and the answer.
// Way: produce.
//
// Settings beyond the task's: MaxBufferedRecords is raised from 10,000, and MaxBufferedBytes bounds memory at 64 MiB
// instead, as franz-go's own benchmark and documentation advise for throughput.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const maxBufferedRecords = 1_000_000
const usualBufferedBytes = 64 << 20

type figures struct {
	Records     int64             `json:"records"`
	AllRecords  int64             `json:"all_records"`
	Seconds     float64           `json:"seconds"`
	CPUSeconds  float64           `json:"cpu_s"`
	MaxRSSMB    float64           `json:"max_rss_mb"`
	Version     string            `json:"version"`
	Settings    map[string]string `json:"settings"`
	LatenciesUS []int64           `json:"latencies_us"`
}

type bench struct {
	task    map[string]string
	topics  []string
	keys    [][]byte
	values  [][]byte
	headers []kgo.RecordHeader
	client  *kgo.Client
	failure atomic.Pointer[error]
}

func main() {
	b := &bench{task: map[string]string{}}
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		b.task[name] = value
	}
	b.readRecords()
	count := b.number("topics")
	for i := range count {
		if count == 1 {
			b.topics = append(b.topics, b.task["topic"])
		} else {
			b.topics = append(b.topics, fmt.Sprintf("%s-%d", b.task["topic"], i))
		}
	}
	settings := b.connect()
	defer b.client.Close()
	warmUp := b.rounds(b.seconds("warm_up_s"))
	started, cpu := time.Now(), cpuSeconds()
	records := b.rounds(b.seconds("seconds"))
	out, err := json.Marshal(figures{
		Records:     records,
		AllRecords:  records + warmUp,
		Seconds:     time.Since(started).Seconds(),
		CPUSeconds:  cpuSeconds() - cpu,
		MaxRSSMB:    maxRSSMB(),
		Version:     version(),
		Settings:    settings,
		LatenciesUS: []int64{},
	})
	check(err)
	fmt.Println(string(out))
}

func (b *bench) connect() map[string]string {
	acks := map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}[b.task["acks"]]
	codecs := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	maxBufferedBytes := b.number("buffer_bytes")
	if maxBufferedBytes == 0 {
		maxBufferedBytes = usualBufferedBytes
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(b.task["bootstrap"], ",")...),
		kgo.RequiredAcks(acks),
		kgo.ProducerLinger(time.Duration(b.number("linger_ms")) * time.Millisecond),
		kgo.ProducerBatchCompression(codecs[b.task["compression"]]),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		kgo.MaxBufferedBytes(maxBufferedBytes),
	}
	settings := map[string]string{
		"RequiredAcks":             b.task["acks"],
		"ProducerLinger":           b.task["linger_ms"] + " ms",
		"ProducerBatchCompression": b.task["compression"],
		"MaxBufferedRecords":       strconv.Itoa(maxBufferedRecords),
		"MaxBufferedBytes":         strconv.Itoa(maxBufferedBytes),
	}
	if b.number("idempotence") == 0 {
		options = append(options, kgo.DisableIdempotentWrite())
		settings["DisableIdempotentWrite"] = "true"
	}
	if size := b.number("batch_bytes"); size > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(int32(size)))
		settings["ProducerBatchMaxBytes"] = strconv.Itoa(size)
	}
	if file := b.task["tls_ca"]; file != "" {
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities(file)}))
		settings["DialTLSConfig"] = "RootCAs"
	}
	client, err := kgo.NewClient(options...)
	check(err)
	b.client = client
	return settings
}

// authorities reads a file of certificates in PEM.
func authorities(file string) *x509.CertPool {
	pem, err := os.ReadFile(file)
	check(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		check(fmt.Errorf("%s holds no certificate", file))
	}
	return pool
}

// rounds sends all records again and again from each thread until the time has passed, and flushes.
func (b *bench) rounds(seconds float64) int64 {
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var total atomic.Int64
	var group sync.WaitGroup
	for range b.number("threads") {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				b.sendRound()
				if b.number("flush_rounds") == 1 {
					check(b.client.Flush(context.Background()))
				}
				total.Add(int64(len(b.values)))
				if !time.Now().Before(end) {
					return
				}
			}
		}()
	}
	group.Wait()
	check(b.client.Flush(context.Background()))
	if failure := b.failure.Load(); failure != nil {
		check(*failure)
	}
	return total.Load()
}

func (b *bench) sendRound() {
	background := context.Background()
	reading := b.task["results"] == "read"
	var outcomes sync.WaitGroup
	promise := func(record *kgo.Record, err error) {
		if err != nil {
			b.failure.CompareAndSwap(nil, &err)
		}
		if reading {
			if record.Offset < -1 {
				panic("an offset below -1")
			}
			outcomes.Done()
		}
	}
	if reading {
		outcomes.Add(len(b.values))
	}
	for i, value := range b.values {
		record := &kgo.Record{Topic: b.topics[i%len(b.topics)], Key: b.keys[i], Value: value, Headers: b.headers}
		b.client.Produce(background, record, promise)
	}
	outcomes.Wait()
}

func (b *bench) readRecords() {
	data, err := os.ReadFile(b.task["records"])
	check(err)
	number := func() int {
		value := int32(binary.BigEndian.Uint32(data))
		data = data[4:]
		return int(value)
	}
	text := func() []byte {
		length := number()
		if length < 0 {
			return nil
		}
		value := data[:length:length]
		data = data[length:]
		return value
	}
	for range number() {
		key := string(text())
		b.headers = append(b.headers, kgo.RecordHeader{Key: key, Value: text()})
	}
	for range number() {
		b.keys = append(b.keys, text())
		b.values = append(b.values, text())
	}
}

func (b *bench) number(name string) int {
	value, err := strconv.Atoi(b.task[name])
	check(err)
	return value
}

func (b *bench) seconds(name string) float64 {
	value, err := strconv.ParseFloat(b.task[name], 64)
	check(err)
	return value
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// maxRSSMB is not from getrusage, which also counts the process this one was forked from.
func maxRSSMB() float64 {
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	check(err)
	return kib / 1024
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

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
