"""The tables and figures of four papers, run again: ``make paper``."""
