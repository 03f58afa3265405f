"""The comparison of docs/coming-from-scikit-learn.md, by the code of that page.

python -m benchmarks.scikit_learn    # writes docs/results/scikit_learn.md
"""

import re
from pathlib import Path
from typing import Any

import sklearn

from benchmarks import pages
from benchmarks.runner import machine_facts

PAGE = Path(__file__).parents[1] / "docs" / "coming-from-scikit-learn.md"
ABOUT = (
    "The adult data: 5,000 training rows, 2,000 test rows, one split. The circuit takes the table "
    "as it is and is calibrated on three folds; the others get one-hot columns."
)


def main() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    exec("\n".join(code), found)
    machine: dict[str, Any] = machine_facts()
    versions = f"Python {machine['python']}, scikit-learn {sklearn.__version__}."
    rows = [[name, *(f"{x:.3f}" for x in scores)] for name, scores in found["scores"].items()]
    blocks = [
        {"code": "python -m benchmarks.scikit_learn"},
        {"text": f"{ABOUT} {versions}"},
        {"columns": ["on the test rows", "accuracy", "log loss"], "rows": rows},
    ]
    page = {"title": "Beside classifiers of scikit-learn", "blocks": blocks}
    pages.write(pages.RESULTS / "scikit_learn", page)


if __name__ == "__main__":
    main()
