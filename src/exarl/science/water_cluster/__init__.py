"""Water clusters: rigid molecules, their minima, and the search for the lowest."""
