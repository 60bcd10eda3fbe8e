"""The soak: two hubs at half of what they can carry for hours, while parts of them die and their stores are emptied."""
