"""A chapter as a notebook: the same text, the same snippets, the same outputs."""

import re

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from overlap.book.book import Book, Run, page
from overlap.book.claim import Claim
from overlap.run import machine
from overlap.run.snippet import Snippet
from overlap.site import svg

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def build(book: Book, path: str, parts: list) -> str:
    """The notebook of one page as JSON text; the same input gives the same bytes."""
    cells = []
    for number, part in enumerate(parts):
        made = _cells(book, path, part)
        for i, cell in enumerate(made):
            cell["id"] = f"cell-{number}-{i}"
        cells += made
    notebook = new_notebook(cells=cells, metadata={"kernelspec": _KERNEL, "language_info": {"name": "python"}})
    nbformat.validate(notebook)
    return nbformat.writes(notebook)


def _cells(book: Book, path: str, part) -> list:
    if isinstance(part, page.Block):
        return _block(book, part)
    if isinstance(part, Claim):
        rows = [f"> **Claim.** {part.text}", ">", f"> `{part.expression}`"]
        rows += [
            f"> - {machine.label(v.profile)}: {'holds' if v.holds else 'false' if v.holds is False else 'open'}: {v.figures}"
            for v in book.verdicts(part)
        ]
        return [new_markdown_cell("\n".join(rows))]
    if isinstance(part, page.Text) and part.text.strip():
        return [new_markdown_cell(_plain(page.replace_values(part.text, lambda value: _value(book, value))))]
    return []


def _value(book: Book, value: page.Value) -> str:
    texts, default = book.value(value), book.default(value.snippet)
    return texts.get(default) or next(iter(texts.values()))


def _plain(text: str) -> str:
    """Markdown as a notebook renders it: admonitions become quotes, page links lose their file ending, attribute lists go."""
    lines, quoted = [], False
    for line in text.splitlines():
        opened = re.match(r'^(?:!!!|\?\?\?\+?) \w+(?: "(.*)")?', line)
        if opened:
            lines.append(f"> **{opened[1] or 'Note'}**\n>")
            quoted = True
        elif quoted and (line.startswith("    ") or not line.strip()):
            lines.append("> " + line[4:] if line.strip() else ">")
        else:
            if quoted and lines[-1] == ">":
                lines[-1] = ""
            quoted = False
            lines.append(line)
    text = page.PRINTED.sub(lambda match: match["text"], "\n".join(lines))
    text = re.sub(r"^#+ .*`.*$", lambda match: match[0].replace("`", ""), text, flags=re.M)  # else the contents miss it
    text = re.sub(r"\{ ?[.#:][^{}\n]*\}", "", text)
    return re.sub(r"\]\((\w+)\.md(#[\w-]+)?\)", r"](../../\1/\2)", text).strip()


def _block(book: Book, block: page.Block) -> list:
    snippet = book.snippet(block.snippet)
    profile = book.default(snippet.name)
    run = book.runs(snippet.name)[profile] if profile else None
    if not block.output:
        return [new_markdown_cell(f"```python\n{snippet.show(list(block.show))}\n```")]
    outputs = _outputs(book, snippet, run) if run else []
    note = new_markdown_cell(
        f"`{snippet.path}`: the output below is from {machine.label(profile)}." if run else f"`{snippet.path}`"
    )
    if not _needs_file(snippet):
        return [note, new_code_cell(_code(snippet), outputs=outputs, metadata=_needs(snippet))]
    name = f"{snippet.name.split('/')[1]}.py"
    command = (
        f"-m torch.distributed.run --standalone --nproc-per-node gpu {name}"
        if snippet.options["launcher"] == "torchrun"
        else name
    )
    write = new_code_cell(f"%%writefile {name}\n{snippet.download}", metadata=_needs(snippet))
    run_it = new_code_cell(f"import sys\n\n!{{sys.executable}} {command}", outputs=outputs, metadata=_needs(snippet))
    return [note, write, run_it]


def _needs(snippet: Snippet) -> dict:
    """Cells that need a GPU are tagged, so that a tool can leave them out."""
    return {} if 0 in snippet.options["gpus"] else {"tags": ["gpu"]}


def _needs_file(snippet: Snippet) -> bool:
    """Processes that import their parent's main file cannot start from a notebook cell."""
    return snippet.options["launcher"] == "torchrun" or "multiprocessing" in snippet.text


def _code(snippet: Snippet) -> str:
    return re.sub(r"^# /// script\n(?:#.*\n)+?# ///\n", "", snippet.download, flags=re.M).strip()


def _outputs(book: Book, snippet: Snippet, run: Run) -> list:
    found = [new_output("stream", name=o["name"], text="".join(o["text"])) for o in run.data["outputs"]]
    pictures = book.plot(snippet.name, run)
    if pictures:
        tag = f'<img alt="{snippet.summary}" src="{svg.data_uri(svg.on_paper(pictures["wide"]))}">'
        found.append(new_output("display_data", {"text/html": tag, "text/plain": snippet.summary}))
    return found
