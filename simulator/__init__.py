"""A local prefix-cache simulator: token accounting under a cache policy, and real K/V tensors."""
