"""What the entry points name; it imports nothing else, since edl --help reads it."""

from __future__ import annotations

from edl.plugins import CommandEntry, JobPlatform

GREET = CommandEntry("edl_example.command:greet", "Watch and control jobs", "greet a job")
NICE = JobPlatform("nice", "edl_example.backend:nice_jobs", runs_in_image=False)
