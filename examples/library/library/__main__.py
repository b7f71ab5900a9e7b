"""``python -m library demo``: the whole story, with the real commands."""

import sys

if __name__ == "__main__":
    if sys.argv[1:] != ["demo"]:
        raise SystemExit("usage: python -m library demo")
    from library.demo import main  # without the application, which the commands load

    main()
