"""Where agent, envs and confkv meet: suites, scoring, records and the command line."""
