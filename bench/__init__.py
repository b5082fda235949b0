"""`make bench`: compares Pronghorn with its peers under the same load on one machine, and measures
the cost of a request.

Never part of the product. Start in `__main__.py`; `contestants.toml` lists the servers,
`workloads.toml` the loads and their bounds. See BENCHMARKING.md.
"""
