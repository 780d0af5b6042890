"""Running what a definition brings along: its reference, and other code of its own."""
