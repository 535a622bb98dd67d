"""Keys: what tells a value, a claim or a table from others, on whatever page it stands."""

import hashlib


def key(*parts: object) -> str:
    """Ten hex digits, made of what is computed; words around it may change."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:10]
