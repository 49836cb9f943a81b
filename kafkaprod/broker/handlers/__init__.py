"""One module per API key: what the broker does with a request.

Each has, for the router: `API`, `LANE`, `MAX_VERSION` (the highest version it understands), `handle(broker, request)`;
and `refuse(request, error_code)`, the response in which every part of the request has failed with one error, if
`refusals` cannot derive it. Those that are no API's are parts that some of them share.

<api>             one API
mutations         the quota of changes of topics (KIP-599)
authorization     what the ACLs let through of a request: all of it, some items, or nothing
config_resources  options of all kinds of resources, as clients see and alter them
"""
