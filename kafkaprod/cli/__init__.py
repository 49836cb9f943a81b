"""The `kafkaprod` command: one module per subcommand, each of which parses, calls and prints.

broker              `kafkaprod broker`: run the embedded broker until SIGTERM or SIGINT, then shut down cleanly
cluster             `kafkaprod cluster`: run an embedded cluster until its input or a signal ends it
doctor              `kafkaprod doctor`: connect, and compare the configuration with cluster and topic
doctor_spark        `kafkaprod doctor --spark`: examine the interpreter that Spark's Python workers run
doctor_redaction    the same: which of the options at hand Spark would show
documentation       make the page docs/cli.md from the parsers
load                `kafkaprod load`: load files into a topic
load_spark          `kafkaprod load --engine spark`: spread the inputs of a load over Spark's executors
load_submit         `kafkaprod load --engine spark` as a program for spark-submit
man                 `kafkaprod man`: the manual page of all commands, made from the parsers
completions         `kafkaprod completions`: what a shell needs to complete commands and flags
perf                `kafkaprod perf`: kafka-producer-perf-test's options and lines; latency at given rates
perf_curve          `kafkaprod perf --curve`: latency at given rates, as an open loop
perf_stats          the numbers and lines of kafka-producer-perf-test
produce             `kafkaprod produce`: lines of stdin, or files, as records; kcat -P's flags
produce_lines       lines with headers, and JSON envelopes of kcat
command_producer    the producer of a command: how Ctrl-C ends it
quickstart          `kafkaprod quickstart`: start a broker, load real data, read every record back and compare
load_metrics        `kafkaprod load --metrics-port`, `--metrics-file`: how a load advances, for Prometheus
load_setup          prepares a load: its topics, its manifest, the options of its producer
load_proof          what the page of a load says of the load itself: when, where, by what
load_arguments      define the arguments of `kafkaprod load` and translate them for the loader
load_changes        names the options of a load that differ from those of an earlier run
spool               `kafkaprod spool`: show, check, send or print what is in a spool
tail                `kafkaprod tail`: show records of a topic
topics              `kafkaprod topics`: list, create, describe and delete topics
transactions        `kafkaprod transactions`: list and describe transactions, find those that hang
writes              `kafkaprod writes`: list the writes with a write_id that a cluster knows, show one, forget one
main                the tree of subcommands
wrong_lines         what was probably meant by a word of a command line that means nothing here
broker_arguments    arguments of the commands that run brokers: TLS, logins, Kafka's options
producer_arguments  arguments of all commands that connect to a cluster
terminal            the process of a command: its signals, its output streams, its colours
"""
