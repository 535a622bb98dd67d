"""What the commands do that are more than a few lines; `cli` reads their options and prints."""
