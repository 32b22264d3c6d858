"""The process of the command `cep`, also as ``python -m cep``."""

import sys
from importlib.abc import MetaPathFinder

from cep.commands.cli import main


class _WithoutPandas(MetaPathFinder):
    """Lets nobody import pandas in this process."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise for pandas, leave the rest to other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError("not used by this command", name=fullname)


def start() -> None:
    """Run the command given by the process's arguments."""
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    if command == "match":
        # Where pandas is installed, Arrow imports it just to ask whether an array is one of its series. That
        # is a third of the time a small file takes. Here, and not in the command: it holds for the process.
        sys.meta_path.insert(0, _WithoutPandas())
    main(prog_name="cep")


if __name__ == "__main__":
    start()
