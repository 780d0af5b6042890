"""The judge of sampled ids: support and distribution."""
