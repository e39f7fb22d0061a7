"""Memory of each process and of Redis from ten thousand rows to ten million, and whether the rate stays what it was."""
