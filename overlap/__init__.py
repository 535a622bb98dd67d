"""The machine behind the book: it runs snippets, keeps what they gave, and inserts it into pages.

    snippets/*.py → worker → recording (JSON) → Book → Pages of blocks → HTML, notebooks, generated files

The terms:
    run            one call of a snippet's main() with so many GPUs visible: result, output, machine, software
    recording      the runs of a snippet on one machine; one is shown, of the others the numbers are kept
    machine        the name of a machine: `cpu`, `h200-x2`; recordings stand in a folder of that name
    reference      a machine named in pyproject.toml: a claim that is false there stops a build
    local          what this machine ran itself, in its cache; docs/recordings has what is committed
    digest         a hash; that of what code means tells whether a recording is fresh, or its code has changed
    scope          the names that an expression of a page can use, over one run
    statistic      what an expression gives in all runs of a recording; verdict: what a claim gives

Imports go down and never in a circle: `run` < `book` < `blocks` < `commands` < `site` < `cli`. To be read so:

`run`: a snippet becomes a recording. It needs torch alone.
    snippet        a file under snippets/: its header, functions, inputs
    meaning        what its code means, as a digest: by it a recording is fresh or stale
    pure           its `plot` or `derive`, without importing it: only what that reaches is executed
    derived        what `derive` adds to the result of a run
    hardware       what a machine is called, and all that a recording says of it
    worker         processes that run snippets, with time limits and captured output
    runner         runs snippets in workers, and makes recordings of what they gave
    recording      recording files, bundles of many, how fresh they are; schema: their fields
    noise          how busy the host was
    scrub          takes out what names a person; text, progress: what a terminal shows
    download       a snippet as one file that runs alone

`book`: recordings are read, and what is asked of them is computed. It knows no page.
    library        the files of a checkout: snippets and recordings
    recording      the runs of a snippet on one machine, with their provenance
    local_runs     what this machine ran itself, in its cache
    records        which of these recordings counts, of each snippet on each machine
    select         which machine is shown first
    expression     what an expression may say; condition: what it knows of a machine
    value          an expression with its format; statistic: its number of several runs, and how numbers read
    verdict        what the data of a machine say of a claim
    ceiling        what a GPU can do at most; limits: what is LOW, and what is above a ceiling
    book           `Book`: what values and claims give, on each machine

`blocks`: pages are read, and taken apart into text and blocks.
    inline         values and marks in sentences
    block          what every kind of block can do, and what it is given; text
    claim, …       one module for each kind, with its HTML in templates/; comparison: the sides of a claim;
                   strip: its dots and bound
    entries        symptoms, terms and statements: headings to link to and to find
    kinds          all kinds; language: pages in Chinese
    page, pages    one page; all of them over a `Book`

`commands`: what a command does that is more than a few lines.
    check          what is wrong with a book
    record         `record` and `import`; compare: the command of this name
    verify         the command `verify`; diagnosis: what holds down what is low; report: its text for people;
                   mine: the file mine.json

`site`: pages are made.
    build          all files that a builder needs, below docs/generated/; files: what makes each of them
    insert, view   a page's blocks and values as HTML in its Markdown; raw: HTML that Markdown leaves alone
    glossary       the first use of a term becomes a link
    folder         the command `build`: docs/ with everything inserted, for any builder
    layers         the sections of evidence, as rows that open
    contents       the contents in a page's margin
    search         what the theme's search reads and finds
    squeeze        a built page in fewer bytes
    navigation     the pages in reading order, with their titles; languages: the menu for translations
    pictures       all pictures; numbers: what they say; chinese: in Chinese; svg: as files;
                   colors: of all the site
    draw           their SVG; layout: where all stands, scales: numbers and texts as pixels
    timeline       what the page's script draws when a reader explores one
    notebook, trace, app   files to take home
    machines       all that pages show of one machine, as data: a file for each
    plugin         MkDocs; background: what a served book runs; quiet: without Material's notice
    notebook_page  the notebook that is a page of the site

`cli` has the commands, `cache` writes files whole or not at all.
"""

from pathlib import Path

__version__ = "0.1.0"


class OverlapError(Exception):
    """Something a person must mend: the message names the file, the reason and the remedy."""


def find_root(start: Path | None = None) -> Path:
    """Return the nearest folder upwards that holds snippets/ and docs/."""
    try:
        start = (start or Path.cwd()).resolve()
    except FileNotFoundError:
        raise OverlapError("the working directory is gone; change into a checkout of the book") from None
    for folder in (start, *start.parents):
        if (folder / "snippets").is_dir() and (folder / "docs").is_dir():
            return folder
    reason = f"{start}: no snippets/ and docs/ here or above, and this is the program alone, without a book"
    raise OverlapError(f"{reason}; run inside a checkout, or take overlap.pyz, which has one")
