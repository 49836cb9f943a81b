"""What a handler is given and gives back: requests, refusals, work in steps, waiting, logins, scripted faults.

faults        what a broker does wrong on purpose, as rules by API key
request_log   what clients have asked, for tests: the newest requests in a ring
purgatory     requests that wait until partitions have moved or their time is over
refusal       the error a request handler raises to answer a Kafka error code
refusal_shapes  the response in which every part of a request has failed, from declarations
steps         work for one request in steps, so that no client holds a thread for long
limits        how long the names are that clients choose and a broker keeps
request       what the router gives a handler, and what a handler gives back
file_records  records that go from a log file to a socket without passing through this process
login         the broker's half of a SASL login: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
meters        meters of what clients use, and how long they must wait for it
oauthbearer   the broker's half of OAUTHBEARER, for tokens without a signature
timers        things to do at a time, for the event loop
"""
