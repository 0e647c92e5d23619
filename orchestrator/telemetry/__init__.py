"""What the running system says about itself: facts (events), and those who listen to them (logs)."""
