"""Hypothesis for every test: no time limits, because a slow machine is no fault of the code under test."""

from hypothesis import HealthCheck, settings

settings.register_profile("binpoint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("binpoint")
