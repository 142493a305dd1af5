"""Writing of records: serializers, writers, transactions and their commits."""
