"""An embedded broker with a durable log, for development and tests. Never imports the producer side."""
