"""The recipes of docs/contributing.md, followed to the letter in a copy of the tree."""
