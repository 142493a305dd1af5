"""The REST API of a cluster: Flink's paths and fields over the gateways of the control plane."""
