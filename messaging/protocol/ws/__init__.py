"""The codec of WS-Coordination and WS-AtomicTransaction: SOAP messages to dataclasses and back (spec 5)."""
