"""The scorecard: what an operator has to do, done in a real Chromium and checked through the API.

    make scorecard                (ARGS="--messages 100000 --only T1,T3" for less)

2 points: done within the presses and within a quarter of the seconds that a person may take (a script reads and types
at once); 1: within twice of both; 0: neither, or not done. The last line is `SCORE n of 42`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from rmhub.hubs import BASE
from tests.browser.chromium import ARGUMENTS, CHROMIUM
from tests.scorecard import tasks_admin, tasks_desk, tasks_documents, tasks_pairs
from tests.scorecard.player import Player, logged_in
from tests.scorecard.stage import World, running

SHARE = 0.25  # of a person's time that a script may take


@dataclass(frozen=True, slots=True)
class Task:
    """`presses` and `seconds` as the scorecard allows them to a person. `who`: the log-in."""

    name: str
    what: str
    presses: int
    seconds: int
    who: str
    play: Callable[[Player, World], None]


# In an order in which one does not spoil the next.
TASKS = (
    Task("T2", "Is anything broken, and how much is blocked?", 0, 5, "operator", tasks_pairs.is_anything_broken),
    Task("T11", "An incident by keyboard only", 0, 45, "operator", tasks_documents.by_keyboard),
    Task("T1", "Nothing since 10:00: say why and fix it", 9, 120, "admin", tasks_pairs.why_and_repair),
    Task("T3", "Resume the longest-suspended pair", 3, 20, "operator", tasks_pairs.resume_the_longest),
    Task("T4", "Skip a poison document, keep a copy", 6, 60, "admin", tasks_pairs.skip_the_poison),
    Task("T5", "What ended attempt 3 of this id?", 2, 15, "operator", tasks_documents.third_attempt),
    Task("T6", "Yesterday's failures as a team view", 6, 45, "operator", tasks_documents.failures_as_team_view),
    Task("T8", "44 in doubt: settle what evidence allows", 7, 90, "operator", tasks_documents.settle_by_evidence),
    Task("T7", "One in doubt: ask, decide", 4, 40, "operator", tasks_documents.ask_and_decide),
    Task("T9", "Onboard a partner from a bundle", 14, 240, "admin", tasks_admin.onboard),
    Task("T10", "Who resumed pair P last week, and why?", 4, 25, "viewer", tasks_pairs.who_resumed),
    Task("T12", "A token, a submission, a webhook", 8, 300, "admin", tasks_admin.integrate),
    Task("T13", "The message with order 4711", 2, 15, "viewer", tasks_desk.find_by_business_key),
    Task("T14", "Send a document by hand", 6, 90, "operator", tasks_desk.send_a_document),
    Task("T15", "Correct an order and send it again", 4, 60, "operator", tasks_desk.edit_and_resubmit),
    Task("T16", "Slack hears of incidents", 6, 90, "admin", tasks_desk.tell_slack),
    Task("T17", "Twenty partners from a spreadsheet", 7, 90, "admin", tasks_desk.onboard_many),
    Task("T18", "Does this partner keep its service level?", 3, 20, "viewer", tasks_desk.service_level),
    Task("T20", "The oldest messages of one partner", 5, 30, "viewer", tasks_desk.oldest_of_a_partner),
    Task("T21", "The console in French", 5, 30, "viewer", tasks_desk.read_in_french),
    Task("T19", "A partner looks up an order and uploads a certificate", 5, 60, "pia", tasks_desk.partner_portal),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one task."""

    task: Task
    presses: int
    seconds: float
    problem: str

    @property
    def points(self) -> int:
        if self.problem:
            return 0
        over = max(self.presses / max(1, self.task.presses), self.seconds / (SHARE * self.task.seconds))
        return 2 if over <= 1 else 1 if over <= 2 else 0


def play(browser: Browser, world: World, task: Task, pictures: Path) -> Result:
    """One task, from the dashboard of a person who has just logged in. A failure leaves a picture."""
    with logged_in(browser, world.hub.url, task.who, world.facts["password"]) as (_, page):
        player = Player(page)
        problem = ""
        try:
            task.play(player, world)
        except Exception as error:
            problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            traceback.print_exc(limit=-3)
            page.screenshot(path=pictures / f"{task.name}.png")
        return Result(task, player.presses, player.seconds, problem)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--only", default="", help="some tasks, such as T1,T3")
    chosen = parser.parse_args()
    if not CHROMIUM:
        print("There is no Chromium on this machine (RMHUB_CHROMIUM names one).", file=sys.stderr)
        return 2
    wanted = set(filter(None, chosen.only.split(",")))
    began = time.monotonic()
    var = BASE / "var" / "scorecard"
    with running(chosen.messages, var, print) as world, sync_playwright() as playwright:
        print(f"seeded and started after {time.monotonic() - began:.0f} s")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        results = [play(browser, world, task, var) for task in TASKS if not wanted or task.name in wanted]
        browser.close()
    print()
    for one in sorted(results, key=lambda one: int(one.task.name[1:])):
        allowed = SHARE * one.task.seconds
        limits = f"{one.presses:2d} of {one.task.presses:2d} presses, {one.seconds:5.1f} of {allowed:5.1f} s"
        print(f"{one.task.name:4} {one.points}  {limits}  {one.task.what}{'  ' + one.problem if one.problem else ''}")
    print(f"SCORE {sum(one.points for one in results)} of {2 * len(results)}")
    return 0 if all(one.points for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
