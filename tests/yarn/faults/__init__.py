"""Fault tests on a real cluster: a package, so that they share a session, and what is left is looked for at its end."""
