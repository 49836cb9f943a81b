"""What a handler is given and gives back: requests, refusals, work in steps, waiting, logins, scripted faults."""
