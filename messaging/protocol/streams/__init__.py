"""Transactional streams (spec 3; protocols 3): what decides, with no clock, database or network behind it.

numbers      ids of streams and numbers of messages
acceptance   which received messages are new
order_ack    when an order acknowledgement is due, and what it says
outgoing     the sender: window, resends, expiry, suspension
final        final acknowledgements, and the memory for messages outside a stream
"""
