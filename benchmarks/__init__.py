"""Benchmarks against other circuit libraries; see README.md."""
