"""Settings of all tests."""

from hypothesis import settings

# No test fails by the clock: an example that is the first to call a kernel waits for its compiler.
settings.register_profile("outrider", deadline=None)
settings.load_profile("outrider")
