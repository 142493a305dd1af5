"""Bodies of REST requests and responses: the one source of the API, its OpenAPI document and docs/rest.md."""
