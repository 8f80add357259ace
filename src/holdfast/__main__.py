"""`python -m holdfast` is `holdfast`."""

from .cli import main

if __name__ == "__main__":
    main()
