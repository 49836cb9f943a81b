from typing_extensions import Buffer

from kafkaprod._core.requests.produce_request import ProduceRequest

def settle_all(request: ProduceRequest, body: Buffer, version: int) -> int | None: ...
