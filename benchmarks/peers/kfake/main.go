// Runs franz-go's fake cluster of three brokers until standard input ends. It prints the brokers' addresses.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	partitions, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(int32(partitions), os.Args[1]))
	if err != nil {
		panic(err)
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}
