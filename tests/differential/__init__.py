"""Routes, requests and servers, to compare the gateway's route with the route for what a server
understood.

`routes` makes routes and decides which one a request is for, with no code of the gateway. `known`
and `spellings` have the requests, `servers` starts servers and reads how they interpreted requests,
and `comparison` compares.
"""
