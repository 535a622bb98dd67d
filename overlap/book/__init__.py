"""The book as read: pages, runs, values, verdicts, each read once. It knows neither MkDocs nor matplotlib."""
