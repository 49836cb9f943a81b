"""Names what PyInstaller does not see: modules that compiled ones import, and those that are loaded at first use."""

from PyInstaller.utils.hooks import collect_submodules

_ELSEWHERE = ("kafkaprod.__pyinstaller", "kafkaprod.spark")  # Spark's workers are Python processes of their own


def _is_wanted(name: str) -> bool:
    return not name.startswith(_ELSEWHERE)


hiddenimports = ["numpy", *collect_submodules("kafkaprod", filter=_is_wanted, on_error="ignore")]
