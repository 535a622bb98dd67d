"""What makes pages: MkDocs, Markdown, matplotlib, notebooks."""
