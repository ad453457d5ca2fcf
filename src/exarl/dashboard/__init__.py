"""``exarl dashboard``: a page in the browser that follows runs, from their directories alone."""
