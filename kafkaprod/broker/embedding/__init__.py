"""The broker inside another program: `EmbeddedBroker`, its child process, scripted faults, pytest fixtures.

host               imports everything once and forks the controller and the brokers of a cluster
cluster_child      the processes of an embedded cluster after the fork: a broker, or the controller
child              the process an `EmbeddedBroker` runs in
children           what the processes of a cluster have in common: they end with their host
pytest_plugin      an embedded broker or cluster as pytest fixtures
cluster            several brokers and their controller as processes of this machine
cluster_changes    wakes a thread of the test that waits for a change of the cluster
cluster_faults     what tests do to a cluster as a whole
chaos              faults that a seed draws, one after another, until a test has seen enough
cluster_links      what tests do to the links between the processes of an embedded cluster
cluster_members    brokers come and go in a running cluster
cluster_options    what a cluster is made of: its arguments, checked
cluster_topics     what tests do to the topics of an embedded cluster, through its controller
cluster_processes  the controller and the brokers as a test sees them
cluster_view       the state of an embedded cluster at one moment, as its controller sees it
disturbance        what a test has broken and can mend
embedded           a broker in a process of its own, for tests and quick starts
faults             scripted faults by API key
arguments          checks of the arguments of embedded brokers, clusters and faults
host_process       the test's side of a cluster's host
child_process      the parent's side of a process of this package: lines of JSON over its stdin
power_cut          what a power cut leaves of a killed broker's files
temporary          temporary directories of brokers and clusters
"""
