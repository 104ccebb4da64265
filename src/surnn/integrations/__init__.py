"""Adapters for other frameworks. Each module imports the framework that it is named after."""
