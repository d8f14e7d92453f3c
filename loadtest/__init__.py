"""Load tests: what users see while others generate at the same time, with and without speculation."""
