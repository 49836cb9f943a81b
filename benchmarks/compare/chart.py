"""A bar chart as SVG, without a library: one bar a client, a whisker from its smallest to its largest turn."""

from collections.abc import Sequence
from html import escape

from benchmarks.compare.figures import Spread

_LABEL_WIDTH, _BAR_WIDTH, _FIGURE_WIDTH = 250, 420, 60
_ROW_HEIGHT, _BAR_HEIGHT, _MARGIN = 24, 16, 30
# Readable on a light and on a dark page.
_OURS, _THEIRS, _TEXT = "#2f81f7", "#8b949e", "#768390"


def chart(bars: Sequence[tuple[str, Spread, bool]], title: str) -> str:
    """Bars of (label, records a second, whether it is ours), largest first."""
    ordered = sorted(bars, key=lambda bar: bar[1].median, reverse=True)
    scale = _BAR_WIDTH / max(spread.high for _, spread, _ in ordered)
    width, height = _LABEL_WIDTH + _BAR_WIDTH + _FIGURE_WIDTH, _MARGIN + _ROW_HEIGHT * len(ordered)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="{_LABEL_WIDTH}" y="16" fill="{_TEXT}">{escape(title)}</text>',
    ]
    for index, (label, spread, is_ours) in enumerate(ordered):
        top = _MARGIN + index * _ROW_HEIGHT
        middle = top + _BAR_HEIGHT / 2
        low, end, high = (_LABEL_WIDTH + value * scale for value in (spread.low, spread.median, spread.high))
        parts += [
            f'<text x="{_LABEL_WIDTH - 8}" y="{middle + 4}" text-anchor="end" fill="{_TEXT}">{escape(label)}</text>',
            f'<rect x="{_LABEL_WIDTH}" y="{top}" width="{end - _LABEL_WIDTH:.1f}" height="{_BAR_HEIGHT}" '
            f'fill="{_OURS if is_ours else _THEIRS}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{_TEXT}" stroke-width="2"/>',
            f'<text x="{high + 8:.1f}" y="{middle + 4}" fill="{_TEXT}">{spread.median / 1e6:.2f}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
