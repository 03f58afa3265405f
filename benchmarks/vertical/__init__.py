"""Mixtures over columns of different parties: the paper's tables, rounds and bytes, cost."""
