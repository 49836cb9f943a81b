"""The last lines of a load."""

from kafkaprod.loader.reports.report import LoadReport


def test_control_characters_of_a_manifests_path_do_not_reach_the_terminal() -> None:
    text = str(LoadReport("t", manifest="/data/\x1b[31mx\u202e\n.csv.manifest"))
    assert text.isprintable()
    assert text.endswith(r"manifest /data/\x1b[31mx\u202e\n.csv.manifest")
