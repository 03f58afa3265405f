"""Federated circuits against one place, other weights, other methods, and more parties."""
