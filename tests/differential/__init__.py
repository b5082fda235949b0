"""Routes, requests and servers, to compare the route that a gateway chose with that of what a server understood.

`routes` makes routes and says which one a request is for; it shares nothing with the gateway. `known` and `spellings`
have the requests, `servers` starts servers and reads what they took requests for, and `comparison` compares.
"""
