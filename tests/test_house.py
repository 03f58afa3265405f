"""The rules of CONTRIBUTING.md that a program can check."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import fedcircuits as fc

ROOT = Path(__file__).parents[1]
SOURCE = sorted((ROOT / "src").rglob("*.py"))
FILES = sorted([*SOURCE, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
PARCELS = "src/fedcircuits/engines/process/parcels.py"  # to processes that one has started
PICKLES = re.compile(r"(pickle|_pickle|multiprocessing\.reduction|copyreg)$")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [fc.datasets, fc.errors, fc.structures, fc.testing]


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def parsed(paths: list[Path]) -> dict[str, ast.Module]:
    """Syntax trees by the path in the repository."""
    return {str(path.relative_to(ROOT)): syntax(path) for path in paths}


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def unsafe(node: ast.AST) -> str | None:
    """What in this node would read or write pickled objects."""
    match node:
        case ast.Import(names=names) if any(PICKLES.match(alias.name) for alias in names):
            return "import of pickle"
        case ast.ImportFrom(module=str(name)) if PICKLES.match(name):
            return f"import from {name}"
        case ast.Attribute(attr="ForkingPickler" as name):
            return name
        case ast.Attribute(value=ast.Name(id="torch"), attr="load" | "save" as name):
            return f"torch.{name}"
        case ast.Attribute(attr="read_pickle" | "to_pickle" as name):
            return name
        case ast.keyword(arg="allow_pickle", value=value):
            never = isinstance(value, ast.Constant) and value.value is False
            return None if never else "allow_pickle"
    return None


def test_rooms_are_small() -> None:
    """A file has at most 400 lines, a function at most 60."""
    long = {str(p): n for p in FILES if (n := len(p.read_text("utf-8").splitlines())) > 400}
    for name, tree in parsed(FILES).items():
        sizes = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions(tree)}
        long |= {f"{name}: {function}": n for function, n in sizes.items() if n > 60}
    assert not long


def test_files_say_what_they_hold() -> None:
    """By their name, and by the theory they open with."""
    vague = {"utils", "util", "common", "helpers", "helper", "misc"}
    odd = [p for p in SOURCE if {*p.parent.parts, p.stem} & vague or p.stem.startswith("base_")]
    trees = parsed(SOURCE)
    assert not odd + [name for name, t in trees.items() if t.body and not ast.get_docstring(t)]


def test_every_class_has_a_name_of_its_own() -> None:
    """Each name stands for one thing in the whole package."""
    homes: dict[str, list[str]] = {}
    for path, tree in parsed(SOURCE).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(path)
    assert not {name: paths for name, paths in homes.items() if len(paths) > 1}


def test_nothing_is_pickled() -> None:
    found = {
        name: unsafe(node)
        for name, tree in parsed(SOURCE).items()
        for node in ast.walk(tree)
        if unsafe(node)
    }
    assert found.keys() == {PARCELS}


@pytest.mark.parametrize(
    "code",
    [
        "torch.load(f)",
        "frame.to_pickle(f)",
        "np.load(f, allow_pickle=flag)",
        "import pickle",
        "from multiprocessing.reduction import ForkingPickler",
        "multiprocessing.reduction.ForkingPickler(f)",
    ],
)
def test_the_search_for_pickle_finds_it(code: str) -> None:
    assert any(unsafe(node) for node in ast.walk(ast.parse(code)))


def test_tests_do_not_import_tests() -> None:
    """What several tests need stands in a module that has none itself."""
    found = [
        f"{name}: {node.module}"
        for name, tree in parsed(FILES).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and re.search(r"(^|\.)test_\w+$", str(node.module))
    ]
    assert not found


def test_secret_sums_are_behind_their_collective() -> None:
    """No method and no estimator asks which summation it was given."""
    rooms = [p for p in SOURCE if {"methods", "estimators"} & set(p.parts)]
    found = [
        name
        for name, tree in parsed(rooms).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "Secret" in {alias.name for alias in node.names}
    ]
    assert not found


def documented() -> dict[str, object]:
    """Public classes, functions and modules by name, with the public functions of the modules."""
    found = {name: getattr(fc, name) for name in fc.__all__}
    for module in MODULES:
        for name, value in vars(module).items():
            own = getattr(value, "__module__", None) == module.__name__
            if own and not name.startswith("_") and isinstance(value, type | FunctionType):
                found[f"{module.__name__.rpartition('.')[2]}.{name}"] = value
    return {k: v for k, v in found.items() if isinstance(v, type | FunctionType | ModuleType)}


def test_public_names_are_documented() -> None:
    """By somebody: a dataclass without a docstring gets its signature."""
    texts = {name: inspect.getdoc(thing) or "" for name, thing in documented().items()}
    short = {name: name.rpartition(".")[2] for name in texts}
    assert not [n for n, text in texts.items() if not text or text.startswith(f"{short[n]}(")]


def test_public_names_have_an_example_that_runs() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", pages, re.MULTILINE | re.DOTALL))
    shown = [n for n in fc.__all__ if re.search(rf"\bfc\.{n}\b", code)]
    own = [n for n in fc.__all__ if ">>>" in (inspect.getdoc(getattr(fc, n)) or "")]
    assert not set(fc.__all__) - {*shown, *own}
