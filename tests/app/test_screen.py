"""Advice on the command line names its options, not arguments of Python."""

import pytest

from fedcircuits.app.screen import in_options


@pytest.mark.parametrize(
    ("advice", "shown"),
    [
        ("give by='sample'; give real=, too", "give --by sample; give --train, too"),
        ("""kinds={'a b': "category"}, or name it in drop= to say so""",
         "--kind 'a b=category', or give --drop COLUMN"),
        ("say what they are by kinds=", "say what they are by --kind COLUMN=KIND"),
        ("set its kind by Table.of(…, kinds={…}) or --kind",
         "set its kind by --kind COLUMN=KIND"),
        ("declare it before fit: Table.of(…, kinds={'k': 'category'})",
         "declare it before fit: --kind k=category"),
        ("3 dates among 4 other texts: kinds={column: 'date'}",
         "3 dates among 4 other texts: --kind COLUMN=date"),
        ("name the column to predict: FedTrees(target='…')",
         "name the column to predict: --target COLUMN"),
        ("give row ids that they share, Federation(…, row_id='…')",
         "give row ids that they share, --row-id COLUMN"),
        ("with share_target=True its holders", "with --share-target its holders"),
        ("least_count=1, or a Table with declared categories, keeps them",
         "--least-count 1 keeps them"),
        ("a guess, else dates='mdy'; 1,234 as 1234, else decimal=','",
         "a guess, else --dates mdy; 1,234 as 1234, else --decimal ,"),
        ("write them alike, or declare ids = 'loose' (--ids loose)",
         "write them alike, or give --ids loose"),
        ("no header: pass names=[…], or put a line of names", "no header: put a line of names"),
        ("a column 'kinds' of 3 rows", "a column 'kinds' of 3 rows"),
    ],
)  # fmt: skip
def test_python_becomes_options(advice: str, shown: str) -> None:
    assert in_options(advice) == shown
