"""`test_sizes` and `test_huge`: the search for the smallest sizes and inputs that break a solution."""
