"""The book as read: pages, recordings, values, verdicts. It does not know MkDocs."""
