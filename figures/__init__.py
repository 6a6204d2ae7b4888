"""One script per study: draws figures from the tables in a results folder."""
