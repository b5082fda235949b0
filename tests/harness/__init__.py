"""Foundation of the end-to-end tests: the server as a process, and clients with one interface.

The harness uses none of the server's code. It starts the server as a user does and talks to it over
the network.
"""
