"""Permutation symmetries of networks: described, acted with, matched."""
