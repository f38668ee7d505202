"""`python -m gridstat` is the `gridstat` command, for those that know only their interpreter."""

from gridstat.console.cli.main import app

if __name__ == "__main__":
    app(prog_name="gridstat")
