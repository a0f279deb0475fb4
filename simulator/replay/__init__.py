"""A trace through a cache policy and through a real model, side by side.

`plan` decides without tensors what every request should read, `run` does it on an engine and measures.
"""
