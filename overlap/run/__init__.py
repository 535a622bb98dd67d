"""What runs snippets and records what they gave. It needs no more than torch."""
