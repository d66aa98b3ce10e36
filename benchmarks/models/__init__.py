"""The model suite: builders, one-model worker, driver, report."""
