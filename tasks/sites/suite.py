"""The suite ``vwa-mini`` for grids: its tasks, an environment with sites of its own for each, scripted players."""

from __future__ import annotations

from tasks.grid.vwa import Opened, VwaSuite
from tasks.sites.mini import FILE, SEED
from tasks.sites.oracle import oracle
from tasks.sites.server import Sites
from tasks.sites.store import PASSWORD, USERNAME
from tasks.vwa.load import load_tasks
from tasks.vwa.logins import Account
from tasks.vwa.sites import embedded_sites


def open_sites() -> Opened:
    """Sites for one environment and what ends them."""
    sites = Sites(SEED)
    return embedded_sites(sites, Account(USERNAME, PASSWORD)), sites.close


def vwa_mini() -> VwaSuite:
    """The 75 tasks."""
    configs = load_tasks(FILE)
    by_number = {config.task_id: config for config in configs}
    return VwaSuite("vwa-mini", configs, open_sites, lambda number: oracle(by_number[number]))
