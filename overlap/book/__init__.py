"""What is recorded, and what expressions over it give: numbers and verdicts. It knows no page."""
