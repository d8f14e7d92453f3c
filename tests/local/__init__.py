"""Test support: a target and drafters in this process, behind the Protocols of the decode loop."""
