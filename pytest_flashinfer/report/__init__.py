"""Floor report: traces, tables and summaries; knows nothing of how a verdict was reached."""
