"""Pages to read: a self-contained HTML page (``page``), and the report of runs made of it."""
