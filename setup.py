"""Which folders the package has: `rules` becomes `cep.library`. pyproject.toml has all the rest."""

from setuptools import find_namespace_packages, setup  # type: ignore[import-untyped]

setup(
    packages=[
        *find_namespace_packages(include=["cep*", "spark_runtime*"]),
        "cep.library",
        *(f"cep.library.{folder}" for folder in find_namespace_packages("rules")),
    ],
    package_dir={"cep.library": "rules"},
    package_data={
        "": ["py.typed", "*.html", "*.cep", "streams.yaml", "*.test.yaml"],
        "cep.jit": ["carried/*/*.kernel"],
    },
)
