"""What each input and axis of a definition is for."""
