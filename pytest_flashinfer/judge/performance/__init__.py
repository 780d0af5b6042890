"""What a card can do at most, and how much work a case is."""
