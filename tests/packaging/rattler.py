"""Render, build and test the recipe for conda-forge with rattler-build: PYTHON rattler.py RECIPE OUTPUT [CHANNEL].

Rule: it runs in the environment of the release's tools, and its last line says how it ended. Exit codes: 0 built; 3
rendered, but the channel did not give the packages; 1 the recipe is wrong.
"""

from __future__ import annotations

import sys

from rattler_build import Package, RattlerBuildError, Stage0Recipe, VariantConfig

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
    (built,) = result.packages
    failed = [test for test in Package.from_file(built).run_tests(channel=[channel]) if not test.success]
    for test in failed:
        print(*test.output, sep="\n")
    print(f"built {built.name}, {f'{len(failed)} of its tests failed' if failed else 'its tests succeed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
