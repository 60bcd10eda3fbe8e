"""WS-Coordination and WS-AtomicTransaction (spec 5), sans-I/O: words, state tables, coordinator, participant."""
