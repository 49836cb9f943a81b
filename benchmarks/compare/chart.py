"""A bar chart as SVG, without a library: one bar a client, a whisker from its smallest to its largest turn.

Labels stand above their bars, so that the whole is narrow enough to be read on a telephone.
"""

from collections.abc import Sequence
from html import escape

from benchmarks.compare.figures import Spread

_BAR_WIDTH, _FIGURE_WIDTH = 420, 60
_ROW_HEIGHT, _LABEL_HEIGHT, _BAR_HEIGHT, _MARGIN = 40, 20, 12, 32
# Readable on a light and on a dark page.
_OURS, _THEIRS, _TEXT = "#2f81f7", "#8b949e", "#717b86"


def chart(bars: Sequence[tuple[str, Spread, bool]], title: str) -> str:
    """Bars of (label, records a second, whether it is ours), largest first."""
    ordered = sorted(bars, key=lambda bar: bar[1].median, reverse=True)
    scale = _BAR_WIDTH / max(spread.high for _, spread, _ in ordered)
    width, height = _BAR_WIDTH + _FIGURE_WIDTH, _MARGIN + _ROW_HEIGHT * len(ordered)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="16">',
        f'<text x="0" y="18" fill="{_TEXT}">{escape(title)}</text>',
    ]
    for index, (label, spread, is_ours) in enumerate(ordered):
        top = _MARGIN + index * _ROW_HEIGHT + _LABEL_HEIGHT
        middle = top + _BAR_HEIGHT / 2
        low, end, high = (value * scale for value in (spread.low, spread.median, spread.high))
        parts += [
            f'<text x="0" y="{top - 5}" fill="{_TEXT}">{escape(label)}</text>',
            f'<rect x="0" y="{top}" width="{end:.1f}" height="{_BAR_HEIGHT}" fill="{_OURS if is_ours else _THEIRS}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{_TEXT}" stroke-width="2"/>',
            f'<text x="{high + 8:.1f}" y="{middle + 6}" fill="{_TEXT}">{spread.median / 1e6:.2f}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
