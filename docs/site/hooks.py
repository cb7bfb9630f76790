# ruff: noqa: INP001  loaded by MkDocs
"""Pages of the site that are made when it is built: the home page, changes, functions, words of errors, examples.

Rule: a page is written once. Links between files of the repository become links between pages.
"""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "report-a-vulnerability.md",
    "tests/system/README.md": "design/tests-of-the-system.md",
    "tests/operators/README.md": "design/window-requirements.md",
}
# Pages for contributors, and lists: the search shows pages of the same words first.
_LAST_IN_SEARCH = (
    "design/", "changelog.md", "contributing.md", "reference/performance/", "reference/sentences.md",
    "report-a-vulnerability.md",
)  # fmt: skip
# Users make these and call no method of them.
_BUILT_BY_CALLS = ("Aggregate", "Store")
# The four doors of the home page.
_DOORS = """<div class="doors" markdown>

[**Try** From nothing to a window in Delta, in ten minutes](tutorial/quickstart.md)

[**Do** Migrate, connect, write, run, troubleshoot](how-to/migrate.md)

[**Look up** Options, columns, errors, metrics](reference/options.md)

[**Understand** Guarantees, delivery, scaling, security](explanation/guarantees.md)

</div>
"""
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """Put the examples into the navigation, and the version and the repository into the head."""
    version = re.search(r'__version__ = "(.+)"', (ROOT / "keyedwm/__init__.py").read_text())
    config.site_name = f"keyedwm {version[1]}" if version else config.site_name
    config.repo_url = config.repo_url or _repository()
    examples = [{_title(path): f"examples/{path.stem}.md"} for path in _examples()]
    config.nav = [{"Examples": examples} if "Examples" in part else part for part in config.nav]
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that are made of other files."""
    for name, page in PAGES.items():
        content = _relinked((ROOT / name).read_text(), Path(name))
        files.append(File.generated(config, page, content=_home(content) if page == "index.md" else content))
    for path in _examples():
        code = f"# {_title(path)}\n\n```python\n{path.read_text()}```\n"
        files.append(File.generated(config, f"examples/{path.stem}.md", content=code))
    files.append(File.generated(config, "reference/functions.md", content=_functions()))
    files.append(File.generated(config, "reference/sentences.md", content=_sentences()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Lead links out of docs to the pages made of their files; rank pages of contributors last, but the rules."""
    path = page.file.src_uri
    if path.startswith(_LAST_IN_SEARCH) and path != "design/rules.md":
        page.meta["search"] = {"boost": 0.05}
    if page.file.generated_by:
        return markdown
    return _relinked(markdown, Path("docs") / page.file.src_uri)


def _repository() -> str | None:
    """The page of the repository that this clone is of, without a login; None if the clone does not name one."""
    command = ["git", "-C", str(ROOT), "config", "--get", "remote.origin.url"]
    address = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    match = re.fullmatch(r"(?:https?://|ssh://|git@)(?:[^@/]*@)?([\w.-]+\.[a-z]+)[:/](.+?)(?:\.git)?/?", address)
    return f"https://{match[1]}/{match[2]}" if match else None


def _home(readme: str) -> str:
    """The README with the doors and the example on its first screen; its picture and the rest follow."""
    title, _, rest = readme.partition("\n\n")
    opening, _, example = rest.partition("\n## Example\n")
    example, _, rest = example.partition("\n## ")
    tagline, _, opening = opening.partition("\n\n")
    hidden = "---\nhide: [navigation]\n---\n\n"
    why = f"## Why one watermark per partition\n\n{opening}"
    return f"{hidden}{title}\n\n{tagline}\n\n{_DOORS}\n{example.lstrip()}\n{why}\n## {rest}"


def _relinked(text: str, source: Path) -> str:
    """The text with links to files of the repository as links from its page; source: the file that holds it."""
    here = Path(PAGES.get(str(source), source.relative_to("docs") if source.is_relative_to("docs") else source)).parent

    def link(match: re.Match[str]) -> str:
        target = _normal(source.parent / match[1])
        if target == "examples":
            target = f"examples/{_examples()[0].name}"
        page = PAGES.get(target) or (f"examples/{Path(target).stem}.md" if target.startswith("examples/") else None)
        if page is None:
            page = target.removeprefix("docs/") if target.startswith("docs/") else None
        return match[1] if page is None else "../" * len(here.parts) + page

    return _LINK.sub(link, text)


def _normal(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def _examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))


def _title(path: Path) -> str:
    """The first sentence of an example's docstring."""
    said = ast.get_docstring(ast.parse(path.read_text())) or path.stem
    return said.partition("\n")[0].partition(":")[0].rstrip(".")


def _functions() -> str:
    """Every public name of keyedwm.spark, with its signature and docstring."""
    tree = ast.parse((ROOT / "keyedwm/spark/__init__.py").read_text())
    names = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    told = "".join(
        f"::: keyedwm.spark.{name}\n" + ("    options: {members: false}\n" if name in _BUILT_BY_CALLS else "") + "\n"
        for name in names
    )
    return f"# Python functions\n\nThe public names of `keyedwm.spark`.\n\n{told}"


def _sentences() -> str:
    """Every sentence that an error of the product can say; what the code puts in is `...`."""
    codes = runpy.run_path(str(ROOT / "keyedwm/core/error_codes.py"))["CODES"]
    found: dict[str, set[str]] = {}
    for room in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and (error := _error_of(node)) in codes and node.args:
                    text = _wrong(node) if _name(node.func) == "wrong" else _text(node.args[0])
                    if text.strip(". "):
                        found.setdefault(codes[error], set()).add(text)
    head = (
        "# The words of errors\n\n"
        "Every sentence that an error can say, by its code; `...` is what it names. "
        "Causes and cures: [errors](errors.md).\n"
    )
    told = [
        f"\n## {code}\n\n{_cause_and_cure(code)}\n\n" + "".join(f"- `{one}`\n" for one in sorted(found[code]))
        for code in sorted(found)
    ]
    return head + "".join(told)


def _cause_and_cure(code: str) -> str:
    """The row of a code on the page of errors, as a paragraph."""
    row = re.search(rf"^\| `{code}` \|.*$", (ROOT / "docs/reference/errors.md").read_text(), re.MULTILINE)
    *_, cause, cure = ("",) * 2 if row is None else row[0].strip("| ").split(" | ")
    return f"**Cause**: {cause}. **Cure**: {cure}."


def _error_of(call: ast.Call) -> str:
    """The class that a call makes: `wrong(...)` of keyedwm.config.validation makes an OptionError."""
    name = _name(call.func)
    return "OptionError" if name == "wrong" else name


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _wrong(call: ast.Call) -> str:
    right = _text(call.args[2]) if len(call.args) > 2 else "..."
    return f"option {_text(call.args[0])}: ... is wrong; {right}"


def _text(node: ast.expr) -> str:
    """The text of an expression, on one line and without backticks; what is not written there is `...`."""
    if isinstance(node, ast.Constant):
        text = str(node.value)
    elif isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
    elif isinstance(node, ast.BinOp):
        text = _text(node.left) + _text(node.right)
    else:
        text = "..."
    return " ".join(text.replace("`", "'").split()) if not isinstance(node, ast.BinOp) else text
