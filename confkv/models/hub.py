"""Hugging Face's hub: whether it answers, and a model's files from it or from its local cache."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from pathlib import Path

from confkv.errors import ModelError
from confkv.models.progress import Progress

PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "vocab.txt"]
PROBE_SECONDS = 4.0


def offline() -> bool:
    """Whether the user asked that the hub be left alone."""
    on = ("1", "true", "yes", "on")
    return any(os.environ.get(name, "").lower() in on for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def reachable(hub_id: str, seconds: float = PROBE_SECONDS) -> bool:
    """Whether the hub answers for ``hub_id`` within ``seconds``, name look-up included."""
    if offline():
        return False
    answered = threading.Event()
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")

    def probe() -> None:
        try:
            urllib.request.urlopen(f"{endpoint}/api/models/{hub_id}", timeout=seconds).close()
            answered.set()
        except urllib.error.HTTPError as error:
            if error.code in (401, 403, 404) and "x-request-id" in {name.lower() for name in error.headers}:
                answered.set()  # the hub itself says no; the download names the reason
        except (OSError, ValueError):
            return

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()


def cached(hub_id: str) -> Path | None:
    """The model's folder in the hub's local cache, if it is complete there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=PATTERNS, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    complete = (folder / "config.json").exists() and any(folder.glob("*.safetensors"))
    return folder if complete else None


def download(hub_id: str, progress: Progress) -> Path:
    """The model's folder, downloaded from the hub; an interrupted download is continued by the next one.

    Raises:
        ModelError: no such model, no access, no safetensors, or the connection broke.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    progress(f"downloading {hub_id} from the hub", 0, None)
    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=PATTERNS))
    except GatedRepoError as error:
        raise ModelError(
            f"{hub_id} asks for its licence to be accepted; do so on the hub, then `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"the hub has no model {hub_id}, or it is private; check the name, or `hf auth login`"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"downloading {hub_id} failed ({cause}); run the command again to continue") from error
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{hub_id} has no safetensors weights; pass a GGUF file or another model")
    return folder
