"""Pure functions from what the gateways answer to REST models."""
