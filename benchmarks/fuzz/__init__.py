"""Hostile inputs of every kind, under limits of memory and time: ``python -m benchmarks.fuzz``."""
