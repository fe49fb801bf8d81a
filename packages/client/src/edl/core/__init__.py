"""What edl decides before, while and after a job runs: pure, facts in and values out."""
