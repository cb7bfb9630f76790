"""Render the recipe for conda-forge with rattler-build and build it: PYTHON rattler.py RECIPE OUTPUT [CHANNEL].

Rule: it runs in the environment of the release's tools, and prints one line. Exit codes: 0 built; 3 rendered, but the
channel did not give the packages; 1 the recipe is wrong.
"""

from __future__ import annotations

import sys

from rattler_build import RattlerBuildError, Stage0Recipe, VariantConfig

NO_CHANNEL = 3


def main(recipe: str, output: str, channel: str = "conda-forge") -> int:
    """Render, then build."""
    try:
        (variant,) = Stage0Recipe.from_file(recipe).render(VariantConfig())
    except RattlerBuildError as error:
        print(f"{recipe} cannot be rendered: {' '.join(str(error).split())}")
        return 1
    try:
        result = variant.run_build(output_dir=output, channels=[channel])
    except RattlerBuildError as error:
        text = " ".join(str(error).split())
        if "resolve dependencies" in text:
            print(f"rendered, but not built: {channel} gave no packages ({text})")
            return NO_CHANNEL
        print(f"{recipe} cannot be built: {text}")
        return 1
    print(f"built {', '.join(package.name for package in result.packages)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
