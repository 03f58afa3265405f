"""The rules of CONTRIBUTING.md that a program can check."""

import ast
import inspect
import re
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import fedcircuits as fc

ROOT = Path(__file__).parents[1]
SOURCE = sorted((ROOT / "src").rglob("*.py"))
FILES = sorted([*SOURCE, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [fc.datasets, fc.errors, fc.structures, fc.testing]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def unsafe(node: ast.AST) -> str | None:
    """What in this node would read or write pickled objects."""
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr="load" | "save" as name):
            return f"torch.{name}"
        case ast.Attribute(attr="read_pickle" | "to_pickle" as name):
            return name
        case ast.keyword(arg="allow_pickle", value=value):
            never = isinstance(value, ast.Constant) and value.value is False
            return None if never else "allow_pickle"
    return None


@pytest.mark.parametrize("path", FILES, ids=named)
def test_rooms_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400, "a file has at most 400 lines"
    long = [f.name for f in functions(ast.parse(text)) if (f.end_lineno or 0) - f.lineno >= 60]
    assert not long, "a function has at most 60 lines"


@pytest.mark.parametrize("path", SOURCE, ids=named)
def test_files_say_what_they_hold(path: Path) -> None:
    words = {*path.parent.parts, path.stem}
    vague = {"utils", "util", "common", "helpers", "helper", "misc"}
    assert not words & vague and not path.stem.startswith("base_")
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)) or not text.strip(), "a file opens with its theory"


@pytest.mark.parametrize("path", SOURCE, ids=named)
def test_nothing_is_pickled(path: Path) -> None:
    found = [unsafe(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    assert not list(filter(None, found))


@pytest.mark.parametrize(
    "code", ["torch.load(f)", "frame.to_pickle(f)", "np.load(f, allow_pickle=flag)"]
)
def test_the_search_for_pickle_finds_it(code: str) -> None:
    assert any(unsafe(node) for node in ast.walk(ast.parse(code)))


def documented() -> dict[str, object]:
    """Public classes, functions and modules by name, with the public functions of the modules."""
    found = {name: getattr(fc, name) for name in fc.__all__}
    for module in MODULES:
        for name, value in vars(module).items():
            own = getattr(value, "__module__", None) == module.__name__
            if own and not name.startswith("_") and isinstance(value, type | FunctionType):
                found[f"{module.__name__.rpartition('.')[2]}.{name}"] = value
    return {k: v for k, v in found.items() if isinstance(v, type | FunctionType | ModuleType)}


@pytest.mark.parametrize("name", documented())
def test_public_names_are_documented(name: str) -> None:
    thing = documented()[name]
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    assert not text.startswith(f"{name.rpartition('.')[2]}("), f"{name}: dataclass wrote it"


@pytest.mark.parametrize("name", fc.__all__)
def test_public_names_have_an_example_that_runs(name: str) -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", pages, re.MULTILINE | re.DOTALL))
    own = inspect.getdoc(getattr(fc, name)) or ""
    assert re.search(rf"\bfc\.{name}\b", code) or ">>>" in own
