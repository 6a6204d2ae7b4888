"""Data sets as tensors in memory."""
