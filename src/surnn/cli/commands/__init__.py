"""Sub-commands of ``surnn`` that have no other home."""
