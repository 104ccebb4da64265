"""Layers and their parts: gates, cells, state, surrogate gradients."""
