"""The broker inside another program: `EmbeddedBroker`, its child process, scripted faults, pytest fixtures."""
