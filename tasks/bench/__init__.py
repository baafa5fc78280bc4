"""The benchmarks of ``confkv bench``: one file a bench, all resumable, all against text the user names."""
