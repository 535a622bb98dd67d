"""What runs gave, as HTML: text with its colours, pictures, provenance, verdicts. Output is data from outside: it is escaped."""

import html
import math
import re
from itertools import groupby

from nbconvert.filters import ansi2html

from overlap.book.book import Run
from overlap.book.claim import Verdict, show
from overlap.run import machine
from overlap.site import svg
from overlap.site.figure import text

_OPERATING_SYSTEM_COMMAND = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


def terminal(text: str) -> str:
    """Escaped HTML of terminal output: carriage returns overwrite, ANSI colours become classes, other controls go."""
    text = _OPERATING_SYSTEM_COMMAND.sub("", text.replace("\r\n", "\n"))
    text = "\n".join(map(_overwritten, text.split("\n")))
    return ansi2html(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text))


def _overwritten(line: str) -> str:
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :] if part else shown
    return shown


def outputs(run: Run) -> str:
    """What the snippet printed, per stream and per rank."""
    ranks = {output["rank"] for output in run.data["outputs"]}
    blocks = []
    for output in run.data["outputs"]:
        heading = f'<div class="ov-rank">rank {output["rank"]}</div>' if len(ranks) > 1 else ""
        kind = " ov-stderr" if output["name"] == "stderr" else ""
        blocks.append(
            f'{heading}<pre class="ov-text{kind}" tabindex="0">{terminal("".join(output["text"])).rstrip()}</pre>'
        )
    return "".join(blocks)


def figure(pictures: dict, sources: dict[str, str], title: str) -> str:
    """A run's picture, one file for wide and one for narrow pages, and, folded away, the numbers it shows.

    The page's script takes the file in view into the page, where it gets the page's colours.
    """
    sizes = {variant: 'width="{}" height="{}"'.format(*svg.size(pictures[variant])) for variant in sources}
    narrow = f'<source media="(max-width: 33rem)" srcset="{sources["narrow"]}" {sizes["narrow"]}>'
    wide = f'<img src="{sources["wide"]}" {sizes["wide"]} loading="lazy" alt="{html.escape(title)}">'
    return f'<figure class="ov-figure" data-search-exclude="true"><picture>{narrow}{wide}</picture>{_table(pictures["table"])}</figure>'


def _table(series: list[dict], limit: int = 100) -> str:
    """The numbers of a picture: a table for each pair of axes, a block of rows for each series."""
    tables, left = "", limit
    for headings, items in groupby(series, key=lambda item: (item["x"], item["y"])):
        head = "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in headings)
        rows = ""
        for item in items:
            name, shown = " · ".join(filter(None, (item["title"], item["label"]))), item["points"][: max(left, 0)]
            if name and shown:
                rows += f'<tr><th scope="rowgroup" colspan="2">{html.escape(name)}</th></tr>'
            rows += "".join(
                f"<tr><td>{html.escape(text(x))}</td><td>{html.escape(text(y))}</td></tr>" for x, y in shown
            )
            left -= len(item["points"])
        tables += f'<table class="ov-table"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>' if rows else ""
    more = f"<p>{-left} more in the raw recording.</p>" if left < 0 else ""
    box = f'<div class="ov-numbers" tabindex="0" role="group" aria-label="Numbers">{tables}{more}</div>'
    return f'<details class="ov-data"><summary>The numbers in this picture</summary>{box}</details>' if tables else ""


def provenance(run: Run) -> str:
    """One line: which machine, which software, when, how long."""
    here, software = run.data["machine"], run.data["software"]
    if here["gpus"]:
        device = f"{len(here['gpus'])} × {here['gpus'][0]['name']}"
        if here["host_gpus"] > len(here["gpus"]):
            device += f" (of {here['host_gpus']} in the host)"
        device += f", driver {here['driver']}"
    else:
        device = f"{here['cpu']}, {here['cores']} cores"
    torch = f"torch {software['torch']}, Python {software['python']}"
    when = f"{'run by this build' if run.live else 'recorded'} {run.data['run']['started'][:10]} in {run.data['run']['seconds']:.1f} s"
    badge = "" if run.grade in ("fresh", "other machine") else f" · {run.grade}"
    return f"{device} · {torch} · {when}{badge}"


def value(texts: dict[str, object], default: str) -> list[tuple[str, object, bool]]:
    """(profile, text, shown first) for each machine that has the value."""
    first = default if default in texts else next(iter(texts))
    return [(profile, text, profile == first) for profile, text in texts.items()]


def scoreboard(rows: list[tuple]) -> str:
    """Rows of (label, printed ms, [(profile, ms, shown first)], limits by profile) as bars on one logarithmic scale."""
    numbers = [n for _, printed, here, limits in rows for n in (printed, *(ms for _, ms, _ in here), *limits.values())]
    low, high = math.log10(min(numbers)) - 0.3, math.log10(max(numbers))

    def bar(ms: float, kind: str, more: str = "", text: str = "") -> str:
        width = 58 * (math.log10(ms) - low) / (high - low)
        return f'<span class="ov-bar {kind}" style="--w:{width:.1f}%" {more}><b>{show(ms)} ms</b> {text}</span>'

    lines = []
    for label, printed, here, limits in rows:
        bars = bar(printed, "ov-theirs", text="printed")
        parts = ""
        for profile, ms, first in here:
            at_best = f"· limit {show(limits[profile])} ms" if profile in limits else ""
            shown, text = (
                ("ov-limited " * (profile in limits) + "ov-on " * first),
                f"on {machine.label(profile)} {at_best}",
            )
            mark = f"--l:{58 * (math.log10(limits[profile]) - low) / (high - low):.1f}%" if profile in limits else ""
            span = bar(ms, f"ov-ours {shown}", f'data-machine="{profile}"', text)
            parts += span.replace('style="', f'style="{mark};', 1) if mark else span
        lines.append(
            f'<div class="ov-score"><p>{html.escape(label)}</p>{bars}<div class="ov-value">{parts}</div></div>'
        )
    return f'<div class="ov-scoreboard">{"".join(lines)}</div>'


def verdicts(found: list[Verdict]) -> str:
    """Verdict and figures of a claim on each machine."""
    rows = []
    states = {True: ("holds", "✓"), False: ("false", "✗"), None: ("open", "–")}
    for item in found:
        state, mark = states[item.holds]
        live = " · this build" if item.live else ""
        rows.append(
            f'<li class="ov-{state}" data-machine="{item.profile}"><span class="ov-mark" aria-hidden="true">{mark}</span> '
            f'<b>{machine.label(item.profile)}</b> <span class="ov-state">{state}{live}</span> '
            f"<code>{html.escape(item.figures)}</code></li>"
        )
    return f"<ul>{''.join(rows)}</ul>"
