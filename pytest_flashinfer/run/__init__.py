"""One run: its session, processes, cards, and how it is spread and ended."""
