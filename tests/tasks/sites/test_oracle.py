"""Tasks played from the first page to the score: scripts solve them, doing nothing or anything does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.actions import ACTIONS
from envs.browser import BrowserEnv
from tasks.grid.agents import NoopAgent, RandomAgent, ScriptedAgent
from tasks.sites import Sites
from tasks.sites.mini import FILE
from tasks.sites.oracle import oracle
from tasks.sites.oracle.hand import Hand, Stuck
from tasks.sites.store import PASSWORD, USERNAME
from tasks.vwa.load import load_tasks
from tasks.vwa.logins import Account
from tasks.vwa.sites import SiteMap, embedded_sites
from tasks.vwa.task import MAX_TURNS, VwaTask

TASKS = {task.task_id: task for task in load_tasks(FILE)}
#: An order with a remembered code, a comment on the post with a picture.
SAMPLE = (210, 324)


class Table:
    """One browser and one set of sites for many tasks."""

    def __init__(self) -> None:
        self.sites = Sites(0)
        self.map: SiteMap = embedded_sites(self.sites, Account(USERNAME, PASSWORD))
        self.env = BrowserEnv(VwaTask(TASKS[101], self.map), max_tokens=1500)

    def play(self, number: int, agent: ScriptedAgent) -> tuple[float, str, int]:
        """Score, reason and turns."""
        self.env.task = VwaTask(TASKS[number], self.map)
        seen, _ = self.env.reset(seed=0)
        answer, over, turns = None, False, 0
        while not over and turns < MAX_TURNS:
            action = agent.act(seen)
            assert action["name"] in ACTIONS
            seen, _, over, _, _ = self.env.step(action)
            answer = action["args"]["text"] if action["name"] == "answer" else None
            turns += 1
        return (*self.env.finish(answer), turns)


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.env.close()
    made.sites.close()


@pytest.mark.usefixtures("browser")
@pytest.mark.parametrize("number", SAMPLE)
def test_the_oracle_solves_what_doing_nothing_does_not(table, number):
    score, reason, turns = table.play(number, oracle(TASKS[number]))
    assert (score, reason) == (1.0, "") and 3 < turns <= MAX_TURNS
    score, reason, turns = table.play(number, NoopAgent())
    assert (score, turns) == (0.0, 1) and reason.startswith("program_html: ")


def test_a_script_that_finds_nothing_says_what_it_looked_for():
    hand = Hand()
    hand.seen = {
        "goal": "",
        "text": 'button "Go" [e1]',
        "url": "http://x.test/",
        "title": "",
        "error": "",
        "effect": "",
    }
    with pytest.raises(Stuck, match=r"link 'Go' is not on http://x\.test/"):
        next(hand.click("link", "Go"))
    assert next(hand.click("button", "Go")) == {"name": "click", "args": {"id": "e1"}}


def test_what_a_busy_machine_refused_is_tried_again():
    hand, seen = Hand(), {"goal": "", "text": "", "url": "", "title": "", "error": "", "effect": ""}
    slow, fill = seen | {"error": 'textbox "A" [e1] did not react within 3 seconds'}, {"id": "e1", "text": "b"}
    script = hand.do("fill", **fill)
    assert next(script) == script.send(slow) == script.send(slow) == {"name": "fill", "args": fill}
    with pytest.raises(Stuck, match="did not react"):
        script.send(slow)
    for error, ended in (("", StopIteration), ('textbox "A" [e1] is disabled', Stuck)):
        script = hand.do("fill", **fill)
        next(script)
        with pytest.raises(ended):
            script.send(seen | {"error": error})


def test_reading_a_page_puts_its_windows_together():
    hand = Hand()
    windows = {
        "top": "url: http://x.test/\none\ntwo\n(3 more lines, about 9 tokens, are cut; scroll down to see them)",
        "end": "url: http://x.test/\n(lines 1 to 1 of 4 are above; scroll up to see them)\ntwo\nthree\nfour",
    }
    blank = {"goal": "", "url": "", "title": "", "error": "", "effect": ""}
    hand.seen = {**blank, "text": windows["end"]}
    script = hand.read()
    assert next(script) == {"name": "scroll", "args": {"direction": "up"}}
    assert script.send({**blank, "text": windows["top"]}) == {"name": "scroll", "args": {"direction": "down"}}
    with pytest.raises(StopIteration) as end:
        script.send({**blank, "text": windows["end"]})
    assert end.value.value == ["one", "two", "three", "four"]


@pytest.mark.usefixtures("browser")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_oracle_solves_all_tasks(table):
    played = {number: table.play(number, oracle(task)) for number, task in TASKS.items()}
    assert {number: reason for number, (score, reason, _) in played.items() if score != 1.0} == {}


@pytest.mark.usefixtures("browser")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_doing_nothing_solves_nothing(table):
    played = {number: table.play(number, NoopAgent()) for number in TASKS}
    assert [number for number, (score, _, _) in played.items() if score] == []


@pytest.mark.usefixtures("browser")
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_luck_solves_fewer_than_three(table):
    played = {number: table.play(number, RandomAgent(f"vwa-mini/{number}", 0)) for number in TASKS}
    assert len([number for number, (score, _, _) in played.items() if score]) < 3
