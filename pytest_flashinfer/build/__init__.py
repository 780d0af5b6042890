"""Floor build: from a solution's sources to a callable, one file per language; knows nothing of judging."""
