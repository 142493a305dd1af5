"""Pure functions from the gateways' answers to REST models."""
