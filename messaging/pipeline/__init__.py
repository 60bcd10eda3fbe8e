"""The data pipeline. Only `manage.py pipeline` and its children import the modules that need Spark or Arrow."""
