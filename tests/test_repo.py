# SPDX-License-Identifier: Apache-2.0
"""Rules that hold for every file of the repository, whatever it is about.

Comes in: the files that git tracks or would track. Goes out: one test for each rule; a failure names the files.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import rdma_plugin

REPO = Path(__file__).parents[1]
MAX_LINES = 250
"""Of a module of the product: a longer one does two things."""
LICENCED = {".py", ".pyi", ".sh", ".proto", ".yaml", ".yml", ".toml", ".cfg"}
LICENCED_NAMES = {"Makefile", "Dockerfile", ".importlinter", ".dockerignore", "run"}
GENERATED = "rdma_plugin/pb/"
SPDX = "SPDX-License-Identifier: Apache-2.0"

# One letter of each pattern stands in brackets, or this file would break its own rules.
REGISTRIES = (
    r"(?<![\w-])(?:docker|ghcr|quay|gcr|nvcr)[.]io\b"
    r"|registry[.]k8s|public[.]ecr|mcr[.]microsoft|pypi[.]org|pythonhosted[.]org|proxy[.]golang[.]org|--(?:extra-)?index[-]url"
)
HOME_PATHS = r"/hom[e]/\w|/User[s]/\w|/wor[k]/(?:main|shared)\b|/roo[t]/\.?\w"
MOCKS = r"unittest[.]mock|from unittest import [m]ock|\bMagic[M]ock|\bmonkeypatch[.]setattr"


def tracked() -> list[str]:
    """Return the paths of all files that are, or on `git add .` would be, part of the repository."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        check=True,
        text=True,
    )
    return sorted(name for name in set(done.stdout.split("\0")) if name and (REPO / name).is_file())


def text_of(name: str) -> str:
    """Return a file's text; bytes that aren't UTF-8 stay visible."""
    return (REPO / name).read_text(encoding="utf-8", errors="replace")


def breaches(pattern: str, names: list[str]) -> list[str]:
    """Return `file:line: text` for each line of the files in which the pattern is found."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name in names
        for number, line in enumerate(text_of(name).splitlines(), start=1)
        if re.search(pattern, line)
    ]


def test_sources_name_their_licence() -> None:
    """Every source file says its licence in its first line, or in its second where the first is for the kernel."""
    names = [
        name
        for name in tracked()
        if not name.startswith(GENERATED) and (Path(name).suffix in LICENCED or Path(name).name in LICENCED_NAMES)
    ]
    assert names
    missing = []
    for name in names:
        lines = text_of(name).splitlines()[:2]
        first = lines[1:] if lines and lines[0].startswith("#!") else lines[:1]
        if not any(SPDX in line for line in first):
            missing.append(name)
    assert missing == []


def test_modules_are_short() -> None:
    """No module of the product is longer than a reader can keep in mind."""
    names = [name for name in tracked() if re.fullmatch(r"rdma_plugin/.*\.py", name) and not name.startswith(GENERATED)]
    assert names
    assert {name: n for name in names if (n := len(text_of(name).splitlines())) > MAX_LINES} == {}


def test_architecture_names_every_module() -> None:
    """A reader of docs/architecture.md finds each module of the product in it."""
    names = [name for name in tracked() if re.fullmatch(r"rdma_plugin/.*[a-z]\.py", name)]
    modules = [
        name.removeprefix("rdma_plugin/").removesuffix(".py") for name in names if not name.startswith(GENERATED)
    ]
    assert modules
    text = text_of("docs/architecture.md")
    assert [module for module in modules if f"`{module}`" not in text] == []


@pytest.mark.parametrize("rule", [REGISTRIES, HOME_PATHS], ids=["registry", "home"])
def test_files_know_no_particular_machine(rule: str) -> None:
    """No file names a registry, a package index or somebody's directory: a clone works anywhere."""
    assert breaches(rule, tracked()) == []


def test_nothing_is_mocked() -> None:
    """Tests use the real thing or a fake on real files and sockets."""
    assert breaches(MOCKS, [name for name in tracked() if name.endswith(".py")]) == []


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (REGISTRIES, "FROM docker." + "io/library/python"),
        (HOME_PATHS, 'cd "/ho' + 'me/alice/src"'),
        (MOCKS, "from unittest" + ".mock import patch"),
    ],
    ids=["registry", "home", "mock"],
)
def test_rules_find_breaches(rule: str, line: str) -> None:
    """Each rule finds what it forbids: the tests above can fail."""
    assert re.search(rule, line)


def test_changelog_has_this_version() -> None:
    """The version that would be released is described for its users."""
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[{re.escape(version)}\]", text_of("CHANGELOG.md"), re.MULTILINE)


def test_package_knows_its_version() -> None:
    """The package says the version that pyproject.toml gives it."""
    assert rdma_plugin.__version__ == tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
