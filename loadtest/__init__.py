"""Load tests.

What users see while others generate at the same time: `locustfile.py` is the user, `compare.py`
runs the grid, `claims.py` decides what holds of adaptive K.
"""
