"""Where the sites of a task are: the official containers by their variables, or our own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode

from envs.records import Login
from tasks.errors import TaskError
from tasks.vwa.evaluators import no_reference, reference_in
from tasks.vwa.evaluators.page_image import Reference
from tasks.vwa.fetch import fetch
from tasks.vwa.load import official_root
from tasks.vwa.logins import EMBEDDED_FORM, OFFICIAL_ACCOUNTS, OFFICIAL_FORMS, Account, login
from tasks.vwa.schema import VwaTaskConfig

#: Variable -> site of a task file.
VARIABLES = {
    "VWA_CLASSIFIEDS": "classifieds",
    "VWA_SHOPPING": "shopping",
    "VWA_REDDIT": "reddit",
    "VWA_WIKIPEDIA": "wikipedia",
    "VWA_HOMEPAGE": "homepage",
}
KNOWN = {*VARIABLES.values(), "forum"}  # sites that a placeholder may stand for
RESET_TOKEN, REDDIT_RESET = "VWA_CLASSIFIEDS_RESET_TOKEN", "VWA_REDDIT_RESET_URL"
_PLACEHOLDER = re.compile(r"__([A-Z]+)__")
_STATE_FILE = re.compile(r"([\w.]+)_state\.json$")


def needed_sites(config: VwaTaskConfig) -> list[str]:
    """The sites whose addresses a task names and has not got yet, in its order."""
    named = [name.lower() for name in _PLACEHOLDER.findall(config.model_dump_json())]
    return [site for site in dict.fromkeys(named) if site in KNOWN]


@dataclass(frozen=True)
class SiteMap:
    """Addresses, accounts and resets of the sites that tasks are played on.

    Args:
        urls: site -> address without a slash at its end (``{"shopping": "http://shop.test"}``).
        hosts: names that this machine's browser reaches at another place (``envs.records.TaskSpec``).
        login: how a site's account logs in, None where it has no account.
        reset: brings the sites back to how a task expects them, before each episode.
        magento: the shop is a Magento shop and answers its REST interface.
        reference: reads reference pictures that are no addresses.
    """

    urls: Mapping[str, str]
    hosts: Mapping[str, str] = field(default_factory=dict)
    login: Callable[[str, str], Login | None] = lambda site, url: None
    reset: Callable[[VwaTaskConfig], None] = lambda config: None
    magento: bool = False
    reference: Reference = no_reference

    def resolve(self, config: VwaTaskConfig) -> VwaTaskConfig:
        """The task with addresses for placeholders.

        Raises:
            TaskError: a site that the task needs has no address.
        """
        resolved = config.resolved({f"__{site.upper()}__": url for site, url in self.urls.items()})
        left = [site for site in needed_sites(resolved) if site in VARIABLES.values()]
        if left:
            where = f"export VWA_{left[0].upper()}=http://...; `confkv doctor --vwa` tells what is missing"
            raise TaskError(f"task {config.task_id} needs the site {left[0]}, whose address is not set; {where}")
        return resolved

    def logins(self, config: VwaTaskConfig) -> list[Login]:
        """The accounts a task is played with: those its ``storage_state`` names, else one for each of its sites."""
        if not config.require_login:
            return []
        named = _STATE_FILE.search(config.storage_state or "")
        sites = named[1].split(".") if named else config.sites
        found = [self.login(site, self.urls[site]) for site in sites if site in self.urls]
        return [each for each in found if each is not None]


def official_sites(environment: Mapping[str, str] | None = None) -> SiteMap:
    """The official containers, at the addresses in the ``VWA_*`` variables; those not set are missed when needed."""
    given = os.environ if environment is None else environment
    urls = {site: given[name].rstrip("/") for name, site in VARIABLES.items() if given.get(name)}

    def log_in(site: str, url: str) -> Login | None:
        return login(site, url, OFFICIAL_ACCOUNTS[site], OFFICIAL_FORMS[site]) if site in OFFICIAL_FORMS else None

    def reset(config: VwaTaskConfig) -> None:
        """Per task: classifieds, and reddit where it has a reset address. The shop's has to be made anew by hand."""
        if not config.require_reset:
            return
        if "classifieds" in config.sites and "classifieds" in urls:
            if not given.get(RESET_TOKEN):
                raise TaskError(f"task {config.task_id} needs classifieds to be reset; export {RESET_TOKEN}=...")
            data = urlencode({"token": given[RESET_TOKEN]}).encode()
            fetch(f"{urls['classifieds']}/index.php?page=reset", data=data, timeout=120)
        if "reddit" in config.sites and given.get(REDDIT_RESET):
            fetch(given[REDDIT_RESET], timeout=120)

    return SiteMap(urls, login=log_in, reset=reset, magento=True, reference=reference_in(official_root()))


class EmbeddedSites(Protocol):
    """What is needed of our own sites."""

    @property
    def hosts(self) -> Mapping[str, str]:
        """Host name -> "ADDRESS:PORT"."""

    @property
    def urls(self) -> Mapping[str, str]:
        """Site -> address."""

    def reset(self) -> None:
        """Back to the seed's records."""


def embedded_sites(sites: EmbeddedSites, account: Account) -> SiteMap:
    """Our own sites; every episode begins with their first records."""

    def log_in(site: str, url: str) -> Login | None:
        return login(site, url, account, EMBEDDED_FORM) if site in ("classifieds", "shopping", "forum") else None

    urls = {("homepage" if name == "home" else name): url.rstrip("/") for name, url in sites.urls.items()}
    return SiteMap(urls, hosts=sites.hosts, login=log_in, reset=lambda config: sites.reset())
