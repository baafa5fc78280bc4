"""A browser as a gymnasium environment. Importing this starts nothing."""

from envs.browser.env import BrowserEnv

__all__ = ["BrowserEnv"]
