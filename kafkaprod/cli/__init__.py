"""The `kafkaprod` command: one module per subcommand, each of which parses, calls and prints."""
