"""What users do with jobs and images: submit, watch, build."""
