"""`test_speed`: measurements, and what becomes of them."""
