"""The paths of the REST API, one module a subject; handlers ask gateways and hand over to the views."""
