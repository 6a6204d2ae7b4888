"""Layers that remove parameter symmetries, and the variants that put them into a network."""
