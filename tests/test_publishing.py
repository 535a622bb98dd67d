"""What the published build installs: locked, and under known licences."""

import importlib.util
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {name: (ROOT / f".github/{name}.txt").read_text() for name in ("requirements", "audit")}
PINNED = {name: dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.M)) for name, text in LOCKS.items()}
LISTED = re.findall(
    r"^\| ([a-z0-9-]+) \| (\d\S*) \| (.*) \|$", (ROOT / ".github/licences.md").read_text(), re.M
)
#: Licences that let the site be built and published; of NVIDIA's, nothing is passed on.
FINE = re.compile(
    r"(LicenseRef-NVIDIA-Proprietary|NVIDIA [\w ]+"
    r"|(Apache|BSD|ISC|MIT|MPL|Mozilla|PSF|Python|Zlib|CC0|0BSD|BSL)[\w .()-]*)"
)


@pytest.mark.parametrize("name", LOCKS)
def test_everything_that_is_installed_to_publish_is_locked_by_hash(name):
    entries = re.split(r"^(?=\S)", LOCKS[name].replace("\\\n", " "), flags=re.M)[1:]
    assert len(entries) == len(PINNED[name]) > 10
    for entry in entries:
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; .+?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", entry), entry[
            :100
        ]
    assert "://" not in LOCKS[name] and "index" not in LOCKS[name]


def test_the_lock_fits_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["site"]
    assert wanted
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(PINNED["requirements"][requirement.name]), (
            f"run .ci/lock: {requirement}"
        )


def test_the_lock_has_the_versions_that_this_project_builds_with():
    constraints = (ROOT / ".github/constraints.txt").read_text()
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", constraints, re.M))
    assert pins.items() <= PINNED["requirements"].items(), "run .ci/lock"
    assert "torch" in pins


#: A Python that says what it is asked to do, and whose pip offers $OFFERED.
PYTHON = """#!/bin/sh
echo "$(basename "$0") $*" >> "$DIARY"
case "$*" in
  "-m pip index versions torch") echo "torch (9.9.9)"; echo "Available versions: $OFFERED" ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
esac
"""


@pytest.mark.parametrize(
    ("offered", "tried"),
    [
        ("9.9.9, 2.13.0+cpu, 2.13.0, 2.9.0", ""),
        ("9.9.9, 2.13.0", ""),
        ("", ""),
        ("9.9.9, 99.2.0+cpu, 99.10.1+cpu, 2.13.0+cpu", "99.10.1+cpu"),
    ],
)
def test_ci_tries_the_newest_cpu_build_where_pip_offers_one(tmp_path, offered, tried):
    python = tmp_path / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)
    diary = tmp_path / "diary"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    environment |= {"DIARY": str(diary), "OFFERED": offered}
    done = subprocess.run([ROOT / ".ci/newest"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    asked = diary.read_text()
    if tried:
        assert done.stdout == f"Newest torch: what depends on it is tested with {tried}, too.\n"
        assert f"install --quiet --no-compile torch=={tried} -e .[test]" in asked
        assert asked.count("-m pytest ") == 2
    else:
        assert done.stdout.startswith("Newest torch: not tried. pip offers ")
        assert asked.splitlines() == ["python3 -m pip index versions torch"]
    run = (ROOT / ".ci/run").read_text()
    assert re.search(r"^\.ci/newest$", run, re.M)


@pytest.mark.parametrize(
    ("path", "begin"), [("README.md", "## Serve the book"), ("docs/contributing.md", "**Set up**")]
)
def test_who_has_no_gpu_is_told_of_the_cpu_build_before_pip_brings_cudas(path, begin):
    text = (ROOT / path).read_text()
    start = text.index(begin)
    assert (
        start < text.index("https://pytorch.org/get-started/locally/") < text.index("pip install -e", start)
    )
    assert "-c .github/constraints.txt" in text


def test_nothing_is_published_whose_tests_failed():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert "test" in jobs["build"]["needs"] and "needs.test.result == 'success'" in jobs["build"]["if"]
    assert jobs["deploy"]["needs"] == "build" and "needs.build.result == 'success'" in jobs["deploy"]["if"]
    triggers = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())[True]  # YAML 1.1 reads `on`
    assert "workflow_call" in triggers


def test_workflows_install_what_they_publish_from_the_lock():
    publish, audit = ((ROOT / f".github/workflows/{name}.yml").read_text() for name in ("publish", "audit"))
    installs = re.findall(r"pip install .*", publish + audit)
    assert len(installs) == 3
    assert all(
        "--require-hashes" in each or "--no-deps --no-build-isolation -e ." in each for each in installs
    )
    assert "pip-audit --strict --require-hashes" in audit


def test_the_licence_of_each_locked_package_is_listed_and_lets_us_publish():
    assert {package: version for package, version, _ in LISTED} == PINNED["requirements"], "run .ci/lock"
    for package, _, said in LISTED:
        assert all(
            FINE.fullmatch(part) for part in re.split(r" (?:AND|OR|WITH) ", said) if part != "LLVM-exception"
        ), f"{package}: {said}"


def test_the_list_says_what_the_installed_packages_say():
    spec = importlib.util.spec_from_file_location("licences", ROOT / ".ci/licences.py")
    spec.loader.exec_module(licences := importlib.util.module_from_spec(spec))
    same = 0
    for package, version, said in LISTED:
        try:
            here = metadata.metadata(package).json
        except metadata.PackageNotFoundError:
            continue
        if here["version"] == version:
            same += 1
            assert licences.licence(here) == said, package
    assert same > 10
