"""How a process knows that it is well, and says so: progress, looks at services, and the pages that show both."""
