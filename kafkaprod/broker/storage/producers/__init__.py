"""What a log remembers of each producer id: sequences, epochs, open transactions."""
