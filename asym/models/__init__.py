"""Architectures, each written once; the variant is an argument."""
