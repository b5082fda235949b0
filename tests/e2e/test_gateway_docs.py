"""Each configuration in the gateway's docs is valid: `pronghorn check` reports nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.certificates import make_identity
from harness.server import REPOSITORY, pronghorn

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs" / "gateway").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(REPOSITORY)}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL), 1
    )
]
SITE = '[[sites]]\nhosts = ["localhost"]\n'
ROUTE = '[[sites.routes]]\nrespond = "found"\n'
ABSOLUTE = re.compile(r'"(/(?:var|etc|srv|run)/[^"]*)"')


def whole(block: str) -> str:
    """Completes a block: keys alone belong to a route, and a block without a site gets one."""
    if block.startswith("[[sites.routes]]"):
        return SITE + block
    if not re.search(r"^\[", block, re.MULTILINE):
        return SITE + ROUTE + block
    if "[[sites]]" not in block:
        asked = re.search(r"^\[upstreams\.(\w+)\]", block, re.MULTILINE)
        return f"{block}\n{SITE}" + (
            f'[[sites.routes]]\nproxy = "{asked[1]}"\n' if asked else ROUTE
        )
    return block if "[[sites.routes]]" in block else f"{block}\n{ROUTE}"


def test_docs_contain_configurations():
    assert len(BLOCKS) > 10


@pytest.mark.parametrize("block", BLOCKS)
def test_configuration_in_the_docs_is_valid(block, tmp_path):
    def here(found: re.Match[str]) -> str:
        path = tmp_path / found[1][1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        if not place(path, identity) and not path.suffix:
            path.mkdir(exist_ok=True)
        return f'"{path}"'

    # The certificates have the names of the block's sites, so that there is no warning about them.
    hosts = re.findall(
        r'"([^"]+)"',
        " ".join(re.findall(r"^hosts = \[(.*?)\]", whole(block), re.MULTILINE | re.DOTALL)),
    )
    identity = make_identity(tmp_path / "identity", names=tuple(hosts))
    for name in re.findall(r'"([a-z-]+\.pem|admin-token)"', block):
        place(tmp_path / name, identity)
    (tmp_path / "admin-token").write_text("6e0a1f1c8d7a4f0b9b1f1a2d3c4b5a69\n")
    (tmp_path / "sticky").write_text("0123456789abcdef\n")
    (tmp_path / "redis-password").write_text("6e0a1f1c8d7a\n")
    (tmp_path / "secrets").touch(mode=0o600)
    (tmp_path / "secrets").write_text(f"{'01ab' * 16}\n")
    (tmp_path / "dist").mkdir()
    file = tmp_path / "pronghorn.toml"
    file.write_text(ABSOLUTE.sub(here, whole(block)))
    checked = subprocess.run(
        [pronghorn(), "check", file], capture_output=True, text=True, timeout=30
    )
    # Most blocks are routes, and omit the certificate of their site.
    said = [line for line in checked.stderr.splitlines() if "no site has a certificate" not in line]
    assert (checked.returncode, said) == (0, []), file.read_text()


def place(path: Path, identity) -> bool:
    """Places a certificate or key where a configuration has one."""
    if path.suffix != ".pem":
        return False
    shutil.copy(identity.key if "key" in path.stem else identity.cert, path)
    return True


@pytest.mark.parametrize("page", ["from-nginx.md", "from-caddy.md"])
def test_each_directive_of_another_server_has_one_row(page):
    table = (REPOSITORY / "docs" / "gateway" / page).read_text().partition("## Directives")[2]
    cells = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    assert len(cells) > 20
    assert sorted(cells) == sorted(set(cells))
    if page == "from-nginx.md":
        # Words in backquotes that are whole directives. Those of Caddy have subdirectives.
        named = [word for cell in cells for word in set(re.findall(r"`([a-z_0-9]+)`", cell))]
        assert sorted(named) == sorted(set(named))


def test_folder_served_in_the_readme_exists():
    readme = (REPOSITORY / "README.md").read_text()
    folders = re.findall(r"pronghorn serve ([\w./-]+)", readme)
    assert folders
    for folder in folders:
        assert (REPOSITORY / folder / "index.html").is_file()
