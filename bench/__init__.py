"""`make bench`: Pronghorn and its peers under the same load on one machine, and what each request costs the server.

Never part of the product. Start in `__main__.py`; `contestants.toml` says who is measured, `workloads.toml` under what
load and which bounds hold. See BENCHMARKING.md.
"""
