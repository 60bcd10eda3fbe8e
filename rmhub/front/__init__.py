"""What stands between the network and the web threads: bodies are fetched here, without a thread, and within limits.

The HTTP server (granian) has a deadline for headers and none for bodies, and a WSGI thread that reads a body waits for
as long as its sender likes. So the server runs this ASGI application, which fetches each body first and then hands the
whole request to a thread. A thread never waits for the network.
"""
