"""List the licences of all packages of a report of `pip install --report`, as a table in Markdown.

They are those that the packages name themselves.
"""

import json
import re
import sys

#: What packages say that do not say it in a field: by their own texts.
UNSAID = {"cuda-toolkit": "NVIDIA CUDA Toolkit EULA"}
_PREFIX = "License :: "


def licence(metadata: dict) -> str:
    """The licence of a package by its metadata; empty if it names none.

    It is its expression, else its classifiers, else a short text of its own.
    """
    classifiers = [item for item in metadata.get("classifier", []) if item.startswith(_PREFIX)]
    classified = [item.split(" :: ")[-1] for item in classifiers]
    text = (metadata.get("license") or "").strip()
    short = text if len(text) <= 60 and "\n" not in text and text != "UNKNOWN" else ""
    named = [item for item in classified if item not in ("OSI Approved", "Other/Proprietary License")]
    expression = metadata.get("license_expression") or " AND ".join(named)
    return expression or short or UNSAID.get(metadata["name"], "")


def name(text: str) -> str:
    """A package's name as indexes normalise it."""
    return re.sub(r"[-_.]+", "-", text).lower()


def table(packages: list[dict]) -> str:
    """Rows of package, version and licence, by name."""
    rows = sorted((name(each["name"]), each["version"], licence(each)) for each in packages)
    lines = [f"| {package} | {version} | {said} |" for package, version, said in rows]
    head = "# Licences of what the published build installs\n\nMade by `.ci/lock`; do not edit.\n"
    return "\n".join([head, "| package | version | licence |", "|---|---|---|", *lines, ""])


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(table([item["metadata"] for item in json.load(file)["install"]]), end="")
