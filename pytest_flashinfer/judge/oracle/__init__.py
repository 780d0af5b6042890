"""The truth of a case and its bound, from a reference run in high precision and with noise."""
