"""One module per study: a frozen Config, run(config) -> DataFrame, and main()."""
