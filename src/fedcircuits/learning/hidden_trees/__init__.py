"""Mini-batch EM of hidden trees whose leaves are tables, several times faster than in general."""
