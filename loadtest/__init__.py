"""Load tests.

What users see while others generate at the same time, with and without speculation.
"""
