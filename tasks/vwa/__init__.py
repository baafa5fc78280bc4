"""VisualWebArena's protocol: task files, sites, log-ins and evaluators, for the official tasks and for our own."""
