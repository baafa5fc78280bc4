"""string_match: the answer the agent gave, held against the reference answers."""

from __future__ import annotations

from tasks.vwa.evaluators import words
from tasks.vwa.evaluators.verdict import Helpers, Verdict
from tasks.vwa.schema import VwaTaskConfig

UNACHIEVABLE = "N/A"


def string_match(config: VwaTaskConfig, answer: str | None, helpers: Helpers) -> Verdict:
    """0 where no answer was given, whatever ended the episode.

    Raises:
        CannotScore: the reference has to be judged and no judge is configured.
    """
    reference = config.eval.reference_answers
    assert reference is not None  # the schema sees to it
    if answer is None:
        return Verdict(0.0, "no answer was given")
    if reference.exact_match is not None and not words.exact_match(reference.exact_match, answer):
        return Verdict(0.0, f"the answer is not {reference.exact_match!r}")
    if lacking := words.missing(reference.must_include or [], answer):
        return Verdict(0.0, f"the answer lacks {lacking[0]!r}")
    if unwanted := words.present(reference.must_exclude or [], answer):
        return Verdict(0.0, f"the answer holds {unwanted[0]!r}")
    if reference.one_of is not None and not any(words.includes(each, answer) for each in reference.one_of):
        return Verdict(0.0, f"the answer holds none of {', '.join(map(repr, reference.one_of))}")
    if reference.required_values is not None:
        value = words.number(answer)
        if value is None:
            return Verdict(0.0, "the answer is not one number")
        for condition in reference.required_values:
            if not words.satisfies(value, condition):
                return Verdict(0.0, f"{value:g} is not {condition}")
    if reference.fuzzy_match is not None:
        return _judged(config, reference.fuzzy_match, answer, helpers)
    return Verdict(1.0)


def _judged(config: VwaTaskConfig, reference: str | list[str], answer: str, helpers: Helpers) -> Verdict:
    if isinstance(reference, str):  # the task cannot be done: saying just that is right, else the reason counts
        if words.exact_match(UNACHIEVABLE, answer):
            return Verdict(1.0)
        judge = helpers.need_judge(f"an answer other than {UNACHIEVABLE}")
        same = judge.same_obstacle(config.intent, config.eval.string_note or "", answer)
        return Verdict.of(same, "the answer does not say why the task cannot be done")
    judge = helpers.need_judge("fuzzy_match")
    for each in reference:
        if not judge.same_answer(config.intent, each, answer):
            return Verdict(0.0, f"the judge does not find {each!r} in the answer")
    return Verdict(1.0)
