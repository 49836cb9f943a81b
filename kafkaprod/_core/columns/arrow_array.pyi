from typing import final

@final
class OwnedArray: ...
