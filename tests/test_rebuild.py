"""Rebuilding elsewhere: the page's scripts run as they are written, and the workflows keep what the page promises."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from overlap.run import recording

ROOT = Path(__file__).resolve().parent.parent
FENCES = re.findall(
    r'^```bash(?: title="(.+?)")?\n(.*?)^```$', (ROOT / "docs/rebuild.md").read_text(), re.MULTILINE | re.DOTALL
)
SCRIPTS = {title: text for title, text in FENCES if title}
FILES = {path.stem: path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
WORKFLOWS = {name: yaml.load(text, yaml.BaseLoader) for name, text in FILES.items()}
JOBS = {f"{name}: {key}": job for name, workflow in WORKFLOWS.items() for key, job in workflow["jobs"].items()}
STEPS = {f"{job}: {n}": step for job, body in JOBS.items() for n, step in enumerate(body.get("steps", []))}


@pytest.mark.parametrize("checker", ["bash -n", "shellcheck --shell=bash --severity=warning -"])
@pytest.mark.parametrize("script", [text for _, text in FENCES if "~/" not in text])
def test_a_script_of_the_page_is_sound(script, checker):
    if not shutil.which(checker.split()[0]):
        pytest.skip(f"{checker.split()[0]} is not installed")
    done = subprocess.run(checker.split(), input=script, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


#: Commands that do here, in another folder, what they would do on another machine.
OPTIONS = "while [[ $1 == -* ]]; do shift; done\n"
FAKES = {
    "python": f'exec {sys.executable} "$@"',
    "overlap": f'exec {sys.executable} -m overlap "$@"',
    "pip": "exit 0",
    "ssh": OPTIONS + 'shift; cd "$THERE"; exec bash -c "$*"',
    "scp": OPTIONS + 'cp "$THERE/${1#*:}" "$2"',
    "sbatch": "array=${1#--array=}; shift\nfor SLURM_ARRAY_TASK_ID in ${array//,/ }; do\n"
    '  export SLURM_ARRAY_TASK_ID; bash "$@" || exit\ndone',
    "gh": '[[ $1 != pr ]] || printf "%s\\n" "$@" > "$THERE/pull_request"',
}


@pytest.fixture
def checkout(small_book, tmp_path_factory, monkeypatch):
    """A book of two snippets as a git checkout with its own `overlap`, and the folder that stands for elsewhere."""
    bin, there = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("there")
    for name, text in FAKES.items():
        (bin / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (bin / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("THERE", str(there))
    monkeypatch.chdir(small_book.root)
    small_book.snippet("a/good")
    small_book.snippet("a/bad", "def main():\n    raise ValueError('boom')\n")
    small_book.page("a", "```snippet a/good\n```\n")
    shutil.copytree(ROOT / "overlap", small_book.root / "overlap", ignore=shutil.ignore_patterns("__pycache__"))
    venv = small_book.root / ".venv/bin"
    venv.mkdir(parents=True)
    (venv / "activate").touch()
    (venv / "python").symlink_to(bin / "python")
    (small_book.root / ".gitignore").write_text(".cache/\n.venv/\n__pycache__/\n*.sh\n*.sbatch\n*.jsonl\n")
    for name, text in SCRIPTS.items():
        (small_book.root / name).write_text(text)
    git("init", "--quiet", "--initial-branch", "main")
    git("config", "user.name", "Somebody")
    git("config", "user.email", "somebody@example.org")
    git("add", ".")
    git("commit", "--quiet", "--message", "A book")
    return small_book, there


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def shell(*command: str, **environment: str) -> tuple[int, str]:
    """(exit code, what it printed) of a command in the current folder."""
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("names, code, failed", [(["a/good"], 0, "0 failed"), ([], 1, "1 failed")])
@pytest.mark.parametrize("command", ["bash over_ssh.sh me@gpu-box --gpus 0", "sbatch --array=0 record.sbatch"])
def test_what_is_recorded_elsewhere_comes_back_even_where_something_fails(checkout, command, names, code, failed):
    book, there = checkout
    got, printed = shell(*command.split(), *names)
    assert got == code, printed
    assert f"1 recorded, {failed}" in printed
    if "sbatch" in command:
        printed = shell("overlap", "import", "bundle-0.jsonl")[1]
    else:
        assert list(there.glob("overlap-*/bundle.jsonl"))
    assert "1 imported, 0 refused" in printed
    assert recording.read(book.path("a/good"))["result"] == {"n": 3}


def ran(job: str, name: str, temp: Path, **environment: str) -> tuple[int, str]:
    """Run a step of a workflow as GitHub would."""
    (script,) = (step["run"] for step in JOBS[job]["steps"] if step.get("name") == name)
    return shell("bash", "-eo", "pipefail", "-c", script, RUNNER_TEMP=str(temp), **environment)


def test_what_a_runner_records_ends_in_a_pull_request(checkout, tmp_path_factory):
    book, there = checkout
    machine, temp = tmp_path_factory.mktemp("machine"), tmp_path_factory.mktemp("temp")
    git("init", "--quiet", "--bare", str(there / "origin"))
    git("remote", "add", "origin", str(there / "origin"))
    (machine / "recorded").mkdir()
    on_runner = {"RUNNER": "gpu-h200", "NAMES": ""}
    code, printed = ran("record: record", "Record", machine, **on_runner)
    assert code == 1 and "1 recorded, 1 failed" in printed
    ran("record: record", "Compare with the recorded machines", machine, **on_runner)
    shutil.copytree(machine / "recorded", temp / "bundles")
    shutil.rmtree(book.root / "docs/recordings")
    (book.root / "docs/recordings").mkdir()

    summary = {"GITHUB_STEP_SUMMARY": str(temp / "summary")}
    code, printed = ran("rebuild: import", "Import and write down what it says", temp, **summary)
    assert code == 0, printed
    text = (temp / "summary").read_text()
    assert "## Imported from gpu-h200\n\n    new: a/good on cpu" in text
    assert "## Checked\n\n    snippets/a/bad.py: missing" in text and "## Compared on gpu-h200" in text

    git("checkout", "--quiet", "--force", "main")
    code, printed = ran(
        "rebuild: propose", "Commit the recordings and open a pull request", temp, BRANCH="recordings/1-1", BASE="main"
    )
    assert code == 0, printed
    assert git("diff", "--name-only", "main", "origin/recordings/1-1") == "docs/recordings/cpu/a/good.json\n"
    asked = (there / "pull_request").read_text().split("\n")
    assert asked[:6] == ["pr", "create", "--base", "main", "--head", "recordings/1-1"]
    assert (temp / "body.md").read_text() == text


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_grants_nothing_by_itself_and_pins_what_it_uses(name):
    assert WORKFLOWS[name]["permissions"] == {}
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(WORKFLOWS[name]["on"])
    used = re.findall(r"uses: (.*)", FILES[name])
    assert used
    assert [line for line in used if not re.match(r"\./\.github/|[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []


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
        name: {what for what, level in job["permissions"].items() if level == "write"} for name, job in JOBS.items()
    }
    assert {name: rights for name, rights in granted.items() if rights} == {
        "rebuild: propose": {"contents", "pull-requests"},
        "publish: deploy": {"pages", "id-token"},
    }


def test_no_pull_request_reaches_a_gpu_runner():
    assert [name for name, workflow in WORKFLOWS.items() if "pull_request" in workflow["on"]] == ["test"]
    runners = {name: job.get("runs-on") for name, job in JOBS.items()}
    assert [runner for name, runner in runners.items() if name.startswith("test: ")] == ["ubuntu-24.04"]
    elsewhere = [name for name, runner in runners.items() if runner and not runner.startswith("ubuntu-")]
    assert elsewhere == ["record: record"]
    assert set(WORKFLOWS["record"]["on"]) == {"workflow_call", "workflow_dispatch"}
