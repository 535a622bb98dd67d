"""A snippet on a page: its code, what it gave in one tab per machine, and the way to take it home."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source
from overlap.run import recording
from overlap.run.runner import command
from overlap.run.snippet import Snippet

_OPTIONS = {"show": "", "code": "yes", "output": "yes", "plot": "yes"}


@dataclass(frozen=True)
class SnippetBlock(Block):
    """```` ```snippet chapter/snippet ````: `show: function, function`; `code: no`, `output: no`, `plot: no` leave a part out."""

    snippet: str
    show: tuple[str, ...]
    code: bool
    output: bool
    plot: bool

    kind: ClassVar[str] = "snippet"
    columns: ClassVar[tuple[str, ...]] = ("snippet", "what it shows", "needs", "run time, freshness", "file")
    template: ClassVar[str] = """
{% from "parts.html" import tabs %}
<div class="ov-snippet"{% if anchor %} id="{{ anchor }}"{% endif %}>
{{ code }}
{% if runs %}
{% call(run) tabs(view, runs, first) %}
<div class="ov-run" data-machine="{{ run.profile }}">{{ view.outputs(run) }}{{ view.figure(name, run) if plot }}</div>
<p class="ov-provenance">{{ provenance(run) }}
{%- if view.raw(run) %} · <a href="{{ view.raw(run) }}">raw recording</a>{% endif %}
{%- if view.trace(run) %} · <a href="{{ view.trace(run) }}" download>trace</a> for Perfetto{% endif %}</p>
{% endcall %}
{% for count, why in missing.items() %}
<p class="ov-missing">{{ count }} GPUs: not recorded, because {{ why }}.</p>
{% endfor %}
<p class="ov-borrow">{% if download %}<a href="{{ download }}" download>Download <code>{{ file }}</code></a>{% else %}<code>{{ path }}</code>{% endif %}
 · runs alone: <code>{{ command }}</code>, <code>uv run {{ file }}</code> or <code>pipx run {{ file }}</code> · {{ needs }} · took
{% for run in runs.values() %}{{ label(run.profile) }} {{ "%.1f" % run.seconds }} s{{ ", " if not loop.last }}{% endfor %}</p>
{% endif %}
</div>"""

    @classmethod
    def read(cls, source: Source) -> "SnippetBlock":
        """Read the options."""
        options = dict(_OPTIONS)
        for row in source.rows():
            key, colon, value = (part.strip() for part in row.partition(":"))
            if not colon or key not in _OPTIONS:
                raise source.refuse(f"unknown option `{row}`", f"known are {', '.join(sorted(_OPTIONS))}")
            if key != "show" and value not in ("yes", "no"):
                raise source.refuse(f"`{row}`: {key} is yes or no", f"write `{key}: no` to leave it out")
            options[key] = value
        show = tuple(part.strip() for part in options["show"].split(",") if part.strip())
        parts = (options[key] == "yes" for key in ("code", "output", "plot"))
        return cls(source.page, source.line, source.snippet, show, *parts)

    def snippets(self, book) -> set[str] | None:
        """The one it shows."""
        return {self.snippet}

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether the snippet has the functions to show."""
        book.snippet(self.snippet).show(list(self.show))
        yield from ()

    def html(self, view) -> str:
        """Code, tabs, what is missing, how to borrow it; links to the snippet lead to the first place that shows its output."""
        book, snippet = view.book, view.book.snippet(self.snippet)
        runs = book.runs(snippet.name) if self.output else {}
        if self.output and not runs:
            raise OverlapError(
                f"{self.where}: {snippet.path}: nothing recorded and this machine cannot run it; run `overlap record {snippet.name}`"
            )
        anchor = anchor_of(snippet.name) if self.output and anchor_of(snippet.name) not in view.anchors else ""
        if anchor:
            view.anchors.add(anchor)
            view.measured.append(snippet.name)
        file = Path(snippet.path).name
        return view.render(
            self.template,
            view=view,
            anchor=anchor,
            name=snippet.name,
            path=snippet.path,
            code=view.code(snippet.show(list(self.show)), snippet.path) if self.code else "",
            runs=runs,
            first=book.default(snippet.name),
            plot=self.plot,
            provenance=provenance,
            missing=snippet.options["missing"],
            download=view.link(f"downloads/{snippet.name}.py"),
            file=file,
            command=command(snippet, file),
            needs=needs(snippet),
        )

    def cells(self, notebook) -> list[dict]:
        """The code, which runs there, with the output of one machine; a file where a cell cannot start its processes."""
        book, snippet = notebook.book, notebook.book.snippet(self.snippet)
        if not self.output:
            return [notebook.markdown(f"```python\n{snippet.show(list(self.show))}\n```")]
        profile = book.default(snippet.name)
        run = book.runs(snippet.name)[profile] if profile else None
        where = f"`{snippet.path}`: the output below is from {notebook.label(profile)}." if run else f"`{snippet.path}`"
        outputs = notebook.outputs(snippet, run) if run else []
        tags = [] if 0 in snippet.options["gpus"] else ["gpu"]
        if snippet.options["launcher"] == "python" and "multiprocessing" not in snippet.text:
            return [notebook.markdown(where), notebook.code(snippet.body, outputs, tags)]
        file = Path(snippet.path).name
        typed = (
            command(snippet, file).replace("torchrun", "-m torch.distributed.run --standalone").removeprefix("python ")
        )
        return [
            notebook.markdown(where),
            notebook.code(f"%%writefile {file}\n{snippet.download}", [], tags),
            notebook.code(f"import sys\n\n!{{sys.executable}} {typed}", outputs, tags),
        ]

    def key(self) -> object:
        """One entry for each snippet."""
        return self.snippet

    def row(self, view) -> list[str]:
        """Name, summary, needs, times, file."""
        snippet, runs = view.book.snippet(self.snippet), view.book.runs(self.snippet)
        return [
            view.render(
                '<span class="ov-together"><a href="{{ href }}"><code>{{ name }}</code></a></span>',
                href=view.page(self.page, anchor_of(snippet.name)),
                name=snippet.name.split("/")[1],
            ),
            view.render('<span class="ov-wide">{{ text }}</span>', text=snippet.summary),
            needs(snippet),
            view.render(
                '{% for run in runs %}<span class="ov-together">{{ label(run.profile) }} {{ "%.1f" % run.seconds }} s</span>, {{ freshness(run) }}'
                "{{ '<br>'|safe if not loop.last }}{% endfor %}",
                runs=runs.values(),
                freshness=freshness,
            ),
            view.render(
                '{% if href %}<a href="{{ href }}" download>download</a>{% endif %}',
                href=view.link(f"downloads/{snippet.name}.py"),
            ),
        ]


def anchor_of(name: str) -> str:
    """HTML id of the place that shows a snippet."""
    return f"snippet-{name.replace('/', '-')}"


def needs(snippet: Snippet) -> str:
    """The least machine it runs on."""
    least = min(snippet.options["gpus"])
    return "a CPU is enough" if least == 0 else "needs a GPU" if least == 1 else f"needs {least} GPUs"


def freshness(run) -> str:
    """The grade, in the words of the index."""
    return "this build" if run.live else recording.FRESH if run.grade == recording.OTHER else run.grade


def provenance(run) -> str:
    """One line: which machine, which software, when, how long."""
    here, software = run.data["machine"], run.data["software"]
    if here["gpus"]:
        names = list(dict.fromkeys(gpu["name"] for gpu in here["gpus"]))
        device = f"{len(here['gpus'])} × {' and '.join(names)}"
        if here["host_gpus"] > len(here["gpus"]):
            device += f" (of {here['host_gpus']} in the host)"
        device += f", driver {here['driver']}"
    else:
        device = f"{here['cpu']}, {here['cores']} cores"
    torch = f"torch {software['torch']}, Python {software['python']}"
    when = f"{'run by this build' if run.live else 'recorded'} {run.day} in {run.seconds:.1f} s"
    badge = "" if run.grade in (recording.FRESH, recording.OTHER) else f" · {run.grade}"
    return f"{device} · {torch} · {when}{badge}"
