"""Tables for the terminal, the live view, CSV, and self-contained HTML pages. Plain rows in, text out."""
