"""Attacks on what roles of a run receive, and on answers: how much they find out."""
