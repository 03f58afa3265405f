"""The version of the library, which parties tell each other before anything else."""

__version__ = "0.1.0"
