"""What an application on YARN is for: a session, one job, or one program. Each mode waits for its end and says how it
was."""
