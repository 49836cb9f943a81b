"""Applications of others that read and write in transactions, while brokers and their own processes die."""
