"""Many networks of one architecture, trained and held as one object."""
