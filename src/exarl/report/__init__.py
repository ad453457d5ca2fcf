"""Self-contained HTML pages (``page``), and the report of runs as such a page."""
