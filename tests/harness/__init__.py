"""What the end-to-end tests stand on: the server as a process, and clients with one face.

Nothing here knows the server's code. It is started as a user starts it and spoken to over the network.
"""
