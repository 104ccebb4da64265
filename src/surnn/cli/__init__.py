"""The command ``surnn``: parse, call the library, print."""
