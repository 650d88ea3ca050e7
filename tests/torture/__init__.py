"""Attacks on the package, for as long as one likes: `make torture`. One module a part, each with `attack(seed, folder)`."""
