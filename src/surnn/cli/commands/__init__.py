"""The sub-commands of ``surnn``, one module each."""
