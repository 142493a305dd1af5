"""The form of snapshots: state handles, metadata, storage, serializers, assignment to subtasks."""
