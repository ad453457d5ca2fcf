"""Build the documentation site into src/exarl/docs_site (``make docs``), or into another folder.

The pages are those of the repository, in the same folders, so their links hold in both. Added are a
first page from README.md, a page for every component, the API reference and the tutorials as
notebooks. A link that leads nowhere, or a page that is in no part of ``NAVIGATION``, is an error.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import exarl
from exarl.cli.describe import Component, catalogue
from exarl.cli.tables import markdown_table

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "build" / "docs"
SITE = ROOT / "src" / "exarl" / "docs_site"
PAGES = ("docs/**/*.md", "examples/**/*.md", "benchmarks/*.md", "CONTRIBUTING.md", "CHANGELOG.md")

NAVIGATION = {
    "First run": "installing tutorials/cartpole python runs dashboard glossary",
    "My simulation": """extending tutorials/fortran external ../examples/external/README
        ../examples/client/README ../examples/lammps/README parallel-environments
        ../examples/c_environment/README guard data fewer-simulations model-based multi-agent""",
    "On the cluster": "slurm tutorials/crashing tutorials/actors workflows elastic gpu bench plan",
    "My own agent": "agents baselines fused architecture ../CONTRIBUTING",
    "Understanding results": """tutorials/sweep report sweeps export ../benchmarks/RESULTS
        ../benchmarks/CLAIMS""",
    "Reference": "configuration api components ../CHANGELOG",
    "Science environments": """envs/cahn_hilliard envs/booster envs/covid envs/water_cluster
        envs/tetris envs/packages""",
}
"""What readers want -> the pages about it, in docs/, in the order in which they are read."""

KINDS = {"agent": "Agents", "workflow": "Workflows", "model": "Networks", "env": "Environments"}
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".f90": "fortran", ".json": "json"}
_LINK = re.compile(r"(!?\[[^\]]*\])\(((?!\w+:)[^)#\s]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)

_KERNEL = """---
jupyter:
  kernelspec:
    display_name: Python 3
    language: python
    name: python3
---

"""
_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n")
_ELSEWHERE = re.compile(r"<!-- needs [^>]* -->\n```\w*\n")


def main(site: Path = SITE) -> int:
    """Write the sources and run Sphinx; its exit code."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for pattern in PAGES:
        for page in sorted(ROOT.glob(pattern)):
            name = page.relative_to(ROOT)
            put(name, with_links(page.read_text(encoding="utf-8"), name))
    put(Path("docs/api.md"), api())
    write_components()
    write_notebooks()
    put(Path("index.md"), first_page())
    shutil.rmtree(site, ignore_errors=True)
    from sphinx.cmd.build import build_main

    folders = [str(SOURCE), str(site), "-c", str(Path(__file__).parent)]
    cache = ["-d", str(SOURCE.with_name("doctrees"))]
    code = build_main(["-q", "-E", "-W", "--keep-going", "-b", "html", *cache, *folders])
    for name in ("objects.inv", ".buildinfo"):  # for other sites and later builds
        (site / name).unlink(missing_ok=True)
    if code:
        shutil.rmtree(site, ignore_errors=True)  # a wheel would carry it
    return code


def put(name: Path, text: str) -> None:
    """Write a page of the site."""
    path = SOURCE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def with_links(text: str, name: Path) -> str:
    """The page; pictures that it shows are copied, and other files that it links to become pages."""

    def target(found: re.Match[str]) -> str:
        label, path, anchor = found.groups()
        file = (ROOT / name.parent / path).resolve()
        if file == ROOT / "README.md":
            return f"{label}({'../' * (len(name.parts) - 1)}index.md{anchor or ''})"
        if not file.is_file() or file.suffix == ".md":
            return found[0]
        place = file.relative_to(ROOT)
        if label.startswith("!"):
            (SOURCE / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, SOURCE / place)
            return found[0]
        put(place.with_name(f"{place.name}.md"), listing(file))
        return f"{label}({path}.md)"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(target, part) for part in parts)


def listing(file: Path) -> str:
    """A page, in no part of the navigation, with the text of a file of the repository."""
    language = LANGUAGES.get(file.suffix, "text")
    text = file.read_text(encoding="utf-8")
    title = file.relative_to(ROOT).as_posix()
    return f"---\norphan: true\n---\n\n# {title}\n\n````{language}\n{text}\n````\n"


def first_page() -> str:
    """README.md with a picture below its first paragraphs, and the navigation."""
    text = with_links((ROOT / "README.md").read_text(encoding="utf-8"), Path("README.md"))
    if "![" not in text:
        picture = "![A block copolymer, annealed by a trained agent](docs/img/ExaCH-v0_trained.png)"
        text = with_links(text.replace("\n```", f"\n{picture}\n\n```", 1), Path("README.md"))
    for caption, names in NAVIGATION.items():
        pages = [re.sub(r"^docs/\.\./", "", f"docs/{name}") for name in names.split()]
        # A page that is gone is an error where a page links to it, and not here.
        text += toctree([page for page in pages if (SOURCE / f"{page}.md").is_file()], caption)
    return text


def toctree(pages: list[str], caption: str = "") -> str:
    """A part of the navigation."""
    lines = [*([f":caption: {caption}"] if caption else []), ":hidden:", "", *pages]
    return "\n".join(["\n```{toctree}", *lines, "```\n"])


def api() -> str:
    """A page with every public name of ``exarl``."""
    text = (
        "# Python API\n\n"
        "Everything here is a name in `exarl`. [From Python](python.md) shows how it is used.\n"
    )
    for name in exarl.__all__:
        kind = "autoclass" if isinstance(getattr(exarl, name), type) else "autofunction"
        members = "   :members:\n" if kind == "autoclass" else ""
        text += f"\n## {name}\n\n```{{eval-rst}}\n.. {kind}:: exarl.{name}\n{members}```\n"
    return text


def write_components() -> None:
    """A page for every component, with its parameters, and one that lists them."""
    found = list(catalogue())
    text = (
        "# Components\n\nThe parameters of each, as `exarl describe ID` prints them. "
        "Those of every run are in [configuration.md](configuration.md).\n"
    )
    for kind, title in KINDS.items():
        own = [component for component in found if component.kind == kind]
        text += f"\n## {title}\n\n| id | |\n|---|---|\n"
        text += "".join(f"| [{c.id}]({file_of(c)}) | {about(c)} |\n" for c in own)
        for component in own:
            put(Path("docs") / file_of(component), page_of(component))
        text += toctree([Path(file_of(component)).with_suffix("").as_posix() for component in own])
    put(Path("docs/components.md"), text)


def file_of(component: Component) -> str:
    """Where in docs/ the page of a component is."""
    return f"components/{re.sub(r'[^A-Za-z0-9_.-]', '_', component.id)}.md"


def about(component: Component) -> str:
    """The first paragraph of what the component says about itself, for a row of a table."""
    return " ".join(component.doc.split("\n\n")[0].split()).replace("|", "\\|")


def page_of(component: Component) -> str:
    """What ``exarl describe`` prints, as a page."""
    table = markdown_table(component.schema) if component.schema else "It has none.\n"
    more = f"```text\n{component.more.strip()}\n```\n\n" if component.more.strip() else ""
    doc = component.doc.replace("``", "`")
    return f"# {component.id}\n\n{doc}\n\n{more}## Parameters\n\n{table}"


def write_notebooks() -> None:
    """The tutorials as notebooks, for download from their pages.

    A file that a page shows becomes a cell that writes it; what needs a cluster is only shown.
    """
    import jupytext

    for page in sorted((SOURCE / "docs/tutorials").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        cells = _FILE.sub(r"```python\n%%writefile \1\n", text)
        cells = _ELSEWHERE.sub("```text\n", cells).replace("```sh\n", "```bash\n")
        notebook = jupytext.reads(_KERNEL + cells, fmt="md")
        jupytext.write(notebook, page.with_suffix(".ipynb"), fmt="ipynb")
        title, _, rest = text.partition("\n")
        note = f"[This page as a notebook]({page.stem}.ipynb)"
        page.write_text(f"{title}\n\n{note}\n{rest}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
