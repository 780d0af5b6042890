"""Check and time GPU kernels with pytest: definitions and solutions in, verdicts and latencies out."""

__version__ = "0.1.0"
