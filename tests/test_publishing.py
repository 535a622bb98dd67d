"""What the published build installs: locked, and under known licences."""

import importlib.util
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
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


@pytest.mark.parametrize(
    ("path", "begin"), [("README.md", "## Serve the book"), ("docs/contributing.md", "**Set up**")]
)
def test_who_has_no_gpu_is_told_of_the_cpu_build_before_pip_brings_cudas(path, begin):
    text = (ROOT / path).read_text()
    start = text.index(begin)
    assert start < text.index("https://pytorch.org/get-started/locally/") < text.index("pip install -e", start)
    assert "-c .github/constraints.txt" in text


def test_nothing_is_published_whose_tests_failed():
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
