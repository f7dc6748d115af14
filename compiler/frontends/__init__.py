"""Readers of network descriptions: each returns a NetworkGraph."""
