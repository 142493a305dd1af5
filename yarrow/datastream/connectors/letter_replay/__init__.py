"""Sources that feed dead letters again to the operators that had put them aside."""
