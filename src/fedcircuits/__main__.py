"""``python -m fedcircuits`` is the command ``fedcircuits``."""

from fedcircuits.app.cli import main

if __name__ == "__main__":
    main()
