"""Options and tolerances of a run."""
