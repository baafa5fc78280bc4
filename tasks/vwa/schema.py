"""The task file of VisualWebArena as strict records: the official 910 tasks and our own are written in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

OR = " |OR| "  # between alternatives of a reference
AND = " |AND| "  # between the start tabs

Difficulty = Literal["easy", "medium", "hard"]
EvalType = Literal["string_match", "url_match", "program_html", "page_image_query"]
#: Two official tasks misspell a difficulty.
_MISSPELT = {"hrad": "hard", "mediun": "medium"}
Level = Annotated[Difficulty, BeforeValidator(lambda value: _MISSPELT.get(value, value))]


class Record(BaseModel):
    """Nothing unknown is accepted and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ReferenceAnswers(Record):
    """What the answer is held against; every field that is given has to be met."""

    exact_match: str | None = None
    must_include: list[str] | None = None
    must_exclude: list[str] | None = None
    one_of: list[str] | None = None
    required_values: list[str] | None = None
    fuzzy_match: Literal["N/A"] | list[str] | None = None


class RequiredContents(Record):
    """What a part of a page is held against; every field that is given has to be met."""

    exact_match: str | None = None
    must_include: list[str] | None = None
    must_exclude: list[str] | None = None
    required_values: list[str] | None = None
    fuzzy_match: str | None = None

    @model_validator(mode="after")
    def _something(self) -> RequiredContents:
        if not self.model_dump(exclude_none=True):
            raise ValueError("nothing is required")
        return self


class ProgramHtml(Record):
    """One look at a page: where (``last``: the page the agent ended on), at which part, and what it must say."""

    url: str
    locator: str
    required_contents: RequiredContents


class ImageQuestion(Record):
    """A question about a picture; an answer that contains ``answer`` is right."""

    question: str
    answer: str


class PageImageQuery(Record):
    """One look at the pictures of a page: questions about them, or a picture that one of them must look like."""

    eval_image_url: str
    eval_image_class: str
    eval_vqa: list[ImageQuestion] = []
    eval_fuzzy_image_match: str | None = None
    ssim_threshold: float = Field(default=0.8, ge=-1.0, le=1.0)

    @model_validator(mode="after")
    def _something(self) -> PageImageQuery:
        if not self.eval_vqa and not self.eval_fuzzy_image_match:
            raise ValueError("neither eval_vqa nor eval_fuzzy_image_match is given")
        return self


class Evaluation(Record):
    """How a task is scored: the product of what ``eval_types`` names."""

    eval_types: list[EvalType] = Field(min_length=1)
    reference_answers: ReferenceAnswers | None = None
    reference_url: str | None = None
    program_html: list[ProgramHtml] | None = None
    string_note: str | None = None
    url_note: Literal["EXACT", "GOLD in PRED"] = "EXACT"
    reference_answer_raw_annotation: str | None = None
    page_image_query: list[PageImageQuery] | None = None

    @model_validator(mode="before")
    @classmethod
    def _empty_is_none(cls, given: Any) -> Any:
        """Official tasks write "" and [] where there is nothing."""
        if isinstance(given, dict):
            return {key: value for key, value in given.items() if value not in ("", [], None)}
        return given

    @model_validator(mode="after")
    def _complete(self) -> Evaluation:
        data = {
            "string_match": ("reference_answers", self.reference_answers),
            "url_match": ("reference_url", self.reference_url),
            "program_html": ("program_html", self.program_html),
            "page_image_query": ("page_image_query", self.page_image_query),
        }
        for kind in self.eval_types:
            field, value = data[kind]
            if value is None:
                raise ValueError(f"{kind} needs {field}")
        if self.reference_answers is not None and not self.reference_answers.model_dump(exclude_none=True):
            raise ValueError("reference_answers is empty")
        return self


class Viewport(Record):
    """Size of the page in CSS pixels; what is left out is the protocol's."""

    width: int | None = Field(default=None, gt=0)
    height: int | None = Field(default=None, gt=0)


class VwaTaskConfig(Record):
    """One task. Addresses hold placeholders such as ``__SHOPPING__`` until ``resolved`` puts sites in."""

    sites: list[str] = Field(min_length=1)
    task_id: int
    require_login: bool
    storage_state: str | None = None
    start_url: str
    geolocation: dict[str, float] | None = None
    intent_template: str
    intent: str = Field(min_length=1)
    instantiation_dict: dict[str, Any]
    require_reset: bool
    eval: Evaluation
    reasoning_difficulty: Level
    visual_difficulty: Level
    overall_difficulty: Level
    image: str | list[str] | None = None
    viewport_size: Viewport | None = None
    intent_template_id: int | None = None
    comments: str | None = None
    reference_url: str | None = None

    @property
    def start_urls(self) -> list[str]:
        """The tabs an episode starts with; the first is the active one."""
        return self.start_url.split(AND)

    @property
    def images(self) -> list[str]:
        """Addresses of the task's input images."""
        given = [self.image] if isinstance(self.image, str) else self.image or []
        return [address for address in given if address]

    def resolved(self, urls: dict[str, str]) -> VwaTaskConfig:
        """The same task with placeholders replaced (``{"__SHOPPING__": "http://shop.test"}``)."""
        text = self.model_dump_json()
        for placeholder, url in urls.items():
            text = text.replace(placeholder, url)
        return VwaTaskConfig.model_validate_json(text)
