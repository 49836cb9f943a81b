"""Transactions of one producer: a pure state machine that the sender drives, without sockets, locks or clocks.

    states      the states of a transaction and the legal moves between them
    verdicts    the requests, and what an answer to one may call for
    answers     what each error code of each request means for the transaction
    commit_table  what each answer to EndTxn proves about the commit
    calls       what the application waits for: init, offsets, commit, abort; and why it failed
    offsets     offsets and group metadata, as this and other clients spell them
    members     which partitions and groups belong to the current transaction
    requests    the messages, with the versions each may travel in
    pauses      how long to wait before a request is repeated
    failures    texts and classes of the errors that the application sees
    intents     the half of the state machine that the application uses
    machine     the half that the sender uses: next_request() and on_response()

`v1` and `v2` are the rules under transaction.version 0-1 and 2 (KIP-890). They are chosen for each transaction.

identity      the state machine between the application's threads and the sender
abilities     what the brokers can do for transactions
machine       the half that the sender uses: next_request() and on_response()
intents       the half of the state machine that the application uses
failures      why a transaction, or the producer, failed: texts and classes of errors
members       which partitions and groups belong to the current transaction
pauses        how long to wait before a request is repeated
requests      the requests of a transaction: their messages and versions
answers       what an error code means for the transaction: one table per request
calls         what the application waits for, and why it failed
offsets       offsets and group metadata for a transaction, as this and other clients spell them
states        the states of a transactional producer and the legal moves between them
commit_table  what each answer to EndTxn proves about the commit
verdicts      the requests of a transaction, and what an answer to one may call for
"""
