"""The broker inside another program: `EmbeddedBroker`, its child process, scripted faults, pytest fixtures.

host               imports everything once and forks the controller and the brokers of a cluster
cluster_child      the processes of an embedded cluster after the fork: a broker, or the controller
child              the process an `EmbeddedBroker` runs in
log_search         the broker's side of it: the newest records, the search through them, what the topics have
log_reading        reads whole logs
group_reading      reads groups, committed offsets and transactions
own_requests       sends records and changes topics without a client
control_socket     the way in for a window, and for a test beside the command
children           what the processes of a cluster have in common: they end with their host
pytest_plugin      an embedded broker or cluster as pytest fixtures
cluster            `EmbeddedCluster`: the life of a cluster, and what tests do to it, by the parts below
cluster_faults     breaks a cluster as a whole
chaos              faults that a seed draws, one after another, until a test has seen enough
cluster_links      cuts, slows down and heals the links between the processes
cluster_members    adds and removes brokers
cluster_topics     makes topics, moves partitions and leaders, through the controller
cluster_state      which processes there are, leaders and replicas, waits for changes
cluster_changes    wakes a thread of the test that waits for a change of the cluster
cluster_view       the state of an embedded cluster at one moment, as its controller sees it
cluster_processes  the controller and the brokers as a test sees them
cluster_options    what a cluster is made of: its arguments, checked
cluster_host       the test's side of a cluster's host
disturbance        what a test has broken and can mend
embedded           a broker in a process of its own, for tests and quick starts
window             the page of a broker or a cluster: starts and ends its process
inspection         requests, groups, transactions and records without a client, for the assertions of a test
arrivals           what arrived at an embedded broker or cluster, for the assertions of a test
faults             scripted faults by API key
arguments          checks of the arguments of embedded brokers, clusters and faults
child_process      the parent's side of a process of this package: lines of JSON over its stdin
commands           the one dispatch of commands, by a table of what a process can do
lines              lines of JSON between two processes: the one reader and writer
patience           how long to wait for a process, where many share few processors
power_cut          what a power cut leaves of a killed broker's files
temporary          temporary directories of brokers and clusters
"""
