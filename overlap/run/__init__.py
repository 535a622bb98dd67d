"""What runs snippets and records what they gave. It needs the standard library, torch and numpy: a bare GPU machine has no more."""
