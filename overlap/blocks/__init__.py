"""What pages are made of: Markdown with fenced blocks and values; each kind with its HTML in templates/."""
