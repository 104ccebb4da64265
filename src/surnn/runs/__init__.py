"""Run folders: writing, locking, reading back, and how far a run has come."""
