"""What makes pages: MkDocs, Markdown, pictures, notebooks."""
