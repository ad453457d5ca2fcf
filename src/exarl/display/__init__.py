"""What a person sees while a run goes on: panel, lines, learning curve."""
