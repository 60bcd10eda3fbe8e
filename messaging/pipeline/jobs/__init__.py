"""The jobs: pure functions from data frames to data frames. They import PySpark and nothing else of the hub."""
