"""What makes pages: MkDocs, Markdown, pictures, notebooks."""

#: Below docs/: the files that a build makes.
FOLDER = "generated"
