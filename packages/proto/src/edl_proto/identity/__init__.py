"""Who the processes of a job are, how they prove it, and who may call what (docs/adr/0021)."""
