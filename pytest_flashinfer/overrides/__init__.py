"""What a conftest.py beside a definition overrides."""
