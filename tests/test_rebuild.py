"""Rebuilding elsewhere: the page's scripts are sound, and the workflows keep what the page promises."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
FENCES = re.findall(
    r'^```bash(?: title="(.+?)")?\n(.*?)^```$',
    (ROOT / "docs/rebuild.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
FILES = {path.stem: path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
WORKFLOWS = {name: yaml.load(text, yaml.BaseLoader) for name, text in FILES.items()}
JOBS = {
    f"{name}: {key}": job for name, workflow in WORKFLOWS.items() for key, job in workflow["jobs"].items()
}
STEPS = {f"{job}: {n}": step for job, body in JOBS.items() for n, step in enumerate(body.get("steps", []))}


@pytest.mark.parametrize("checker", ["bash -n", "shellcheck --shell=bash --severity=warning -"])
@pytest.mark.parametrize("script", [text for _, text in FENCES if "~/" not in text])
def test_a_script_of_the_page_is_sound(script, checker):
    if not shutil.which(checker.split()[0]):
        pytest.skip(f"{checker.split()[0]} is not installed")
    done = subprocess.run(checker.split(), input=script, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_grants_nothing_by_itself_and_pins_what_it_uses(name):
    assert WORKFLOWS[name]["permissions"] == {}
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(WORKFLOWS[name]["on"])
    used = re.findall(r"uses: (.*)", FILES[name])
    assert used
    assert [
        line for line in used if not re.match(r"\./\.github/|[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)
    ] == []


@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_and_says_what_it_may(name):
    assert "timeout-minutes" in JOBS[name] or "uses" in JOBS[name]
    assert "permissions" in JOBS[name]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_keeps_no_token_and_takes_no_text_from_outside_into_a_shell(name):
    assert "${{" not in STEPS[name].get("run", "")
    if STEPS[name].get("uses", "").startswith("actions/checkout@"):
        assert STEPS[name]["with"]["persist-credentials"] == "false"


def test_only_two_jobs_may_write():
    granted = {
        name: {what for what, level in job["permissions"].items() if level == "write"}
        for name, job in JOBS.items()
    }
    assert {name: rights for name, rights in granted.items() if rights} == {
        "rebuild: propose": {"contents", "pull-requests"},
        "publish: deploy": {"pages", "id-token"},
    }


def test_a_gpu_runner_tests_what_needs_a_gpu():
    runs = [step.get("run", "") for step in JOBS["record: record"]["steps"]]
    (tests,) = [run for run in runs if "pytest" in run]
    assert " -m gpu " in tests and "--shuffle" in tests


def test_no_pull_request_reaches_a_gpu_runner():
    assert [name for name, workflow in WORKFLOWS.items() if "pull_request" in workflow["on"]] == ["test"]
    runners = {name: job.get("runs-on") for name, job in JOBS.items()}
    assert [runner for name, runner in runners.items() if name.startswith("test: ")] == ["ubuntu-24.04"]
    elsewhere = [name for name, runner in runners.items() if runner and not runner.startswith("ubuntu-")]
    assert elsewhere == ["record: record"]
    assert set(WORKFLOWS["record"]["on"]) == {"workflow_call", "workflow_dispatch"}
