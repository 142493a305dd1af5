"""Rows of windows are folded in front of the exchange to the operator of the windows."""
