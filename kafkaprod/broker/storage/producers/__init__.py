"""What a log remembers of each producer id: sequences, epochs, open transactions.

producer_state  duplicate and sequence checks, open transactions and the last stable offset of one partition
producer_entry  what a partition remembers of one producer, and the snapshot file that holds all of them
"""
