"""Densities: images, binary tables, speed of the passes, beside the peer that runs on a CPU."""
