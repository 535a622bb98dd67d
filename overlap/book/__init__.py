"""The book as read: pages, recordings, values, verdicts. It knows neither MkDocs nor matplotlib."""
