"""What the recipes promise: each runs in a copy in which its recipe was followed (`tests.recipes.test_recipes`)."""
