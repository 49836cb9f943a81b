"""Draw latency against throughput over linger and batch size."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kafkaprod.cli.perf_stats import Totals

WIDTH, HEIGHT, MARGIN = 820, 480, 70
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")


@dataclass(frozen=True, slots=True)
class Point:
    """One run of the curve."""

    batch_size: int
    linger_ms: int
    totals: Totals


def draw(points: Sequence[Point], title: str) -> str:
    """Return an SVG: a line per batch size, a point per linger; throughput to the right, 99th percentile upwards."""
    most_x = round_up(max(point.totals.records_per_second for point in points))
    most_y = round_up(max(max(point.totals.percentiles_ms[2] for point in points), 1))
    shapes = [*_axes(most_x, most_y), _text(WIDTH / 2, 24, title, "middle", 15)]
    sizes = sorted({point.batch_size for point in points})
    for number, size in enumerate(sizes):
        colour = COLOURS[number % len(COLOURS)]
        line = [point for point in points if point.batch_size == size]
        places = [_place(point, most_x, most_y) for point in line]
        shapes.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" '
            f'points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
        )
        for (x, y), point in zip(places, line, strict=True):
            shapes.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{_about(point)}</title></circle>'
            )
            shapes.append(_text(x + 6, y - 6, f"{point.linger_ms} ms", "start", 11))
        legend = f"batch.size {size:,} bytes"
        shapes.append(_text(WIDTH - MARGIN, 44 + 15 * number, legend, "end", 12, colour))
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def page(points: Sequence[Point], title: str) -> str:
    """Return the picture and its numbers as HTML."""
    rows = "\n".join(
        f"<tr><td>{p.batch_size}</td><td>{p.linger_ms}</td><td>{p.totals.records_per_second:,.0f}</td>"
        f"<td>{p.totals.bytes_per_second / 1e6:,.1f}</td><td>{p.totals.average_ms:.2f}</td>"
        + "".join(f"<td>{value:.1f}</td>" for value in p.totals.percentiles_ms)
        + "</tr>"
        for p in points
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font-family:sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:right}</style></head><body>"
        f"{draw(points, title)}<table><tr><th>batch.size</th><th>linger.ms</th><th>records/s</th><th>MB/s</th>"
        f"<th>avg ms</th><th>p50</th><th>p95</th><th>p99</th><th>p99.9</th></tr>\n{rows}</table></body></html>\n"
    )


def round_up(highest: float) -> float:
    """Return the end of an axis whose five steps are round numbers: 1, 2, 2.5 or 5 times a power of ten each."""
    step = highest / 5
    power = 10.0 ** math.floor(math.log10(step))
    return 5 * power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * 0.999)


def _place(point: Point, most_x: float, most_y: float) -> tuple[float, float]:
    return (
        MARGIN + point.totals.records_per_second / most_x * (WIDTH - 2 * MARGIN),
        HEIGHT - MARGIN - point.totals.percentiles_ms[2] / most_y * (HEIGHT - 2 * MARGIN),
    )


def _axes(most_x: float, most_y: float) -> list[str]:
    left, right, top, bottom = MARGIN, WIDTH - MARGIN, MARGIN, HEIGHT - MARGIN
    shapes = [f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="black"/>']
    for step in range(6):
        x, y = left + (right - left) * step / 5, bottom - (bottom - top) * step / 5
        shapes.append(_text(x, bottom + 18, f"{most_x * step / 5:,.0f}", "middle", 11))
        shapes.append(_text(left - 8, y + 4, f"{most_y * step / 5:,g}", "end", 11))
        shapes.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#ddd" fill="none"/>')
    shapes.append(_text((left + right) / 2, HEIGHT - 20, "records/s", "middle", 13))
    shapes.append(_text(left, top - 12, "99th percentile, ms", "start", 13))
    return shapes


def _about(point: Point) -> str:
    return html.escape(f"batch.size={point.batch_size} linger.ms={point.linger_ms}: {point.totals.line()}")


def _text(x: float, y: float, text: str, anchor: str, size: int, colour: str = "black") -> str:
    shown = html.escape(text)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{shown}</text>'
