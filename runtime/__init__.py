"""Artifacts, sessions, exponent controllers and data: everything that running needs."""
