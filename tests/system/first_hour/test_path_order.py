"""PySpark comes from site-packages, with byte-code, where Spark puts its own zip first on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from keyedwm import path_order
from keyedwm.path_order import zips_behind_packages

SITE, HOME = "/env/site-packages", "/opt/spark"
INSIDE = f"{SITE}/pyspark/python/lib"


def test_the_zips_of_an_installation_that_is_on_the_path_go_behind_it():
    given = ["", f"{INSIDE}/pyspark.zip", f"{INSIDE}/py4j-0.10.9.9-src.zip", "/mine", SITE, "/more"]
    assert zips_behind_packages(given) == [
        "", "/mine", SITE, "/more", f"{INSIDE}/pyspark.zip", f"{INSIDE}/py4j-0.10.9.9-src.zip",
    ]  # fmt: skip


def test_the_zip_of_another_installation_stays_first():
    others = [f"{HOME}/python/lib/pyspark.zip", "/elsewhere/pyspark/python/lib/pyspark.zip", SITE]
    assert zips_behind_packages(others) == others


def test_directories_of_the_user_keep_their_order():
    given = [SITE, "/b", "/a", f"{INSIDE}/readme.txt", f"{SITE}/own.zip"]
    assert zips_behind_packages(given) == given


def test_an_installation_that_is_reached_through_a_link_is_the_same(tmp_path):
    (tmp_path / "environment").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "environment")
    zips, site = f"{tmp_path}/environment/pyspark/python/lib/pyspark.zip", f"{tmp_path}/link"
    assert zips_behind_packages([zips, "/mine", site]) == ["/mine", site, zips]


def test_a_copy_of_the_package_that_comes_first_on_the_path_is_the_one_that_is_imported(tmp_path):
    """As with `--py-files`, and with a checkout in the working directory."""
    (tmp_path / "keyedwm").mkdir()
    (tmp_path / "keyedwm" / "__init__.py").write_text("print('the copy')")
    ran = subprocess.run(
        [sys.executable, "-m", "keyedwm.any"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert ran.stdout == "the copy\n"


STARTS = """
import sys
from keyedwm.runtime import early_host
early_host.start = lambda: print("started")
sys.path.insert(0, "/env/pyspark/python/lib/pyspark.zip")
sys.orig_argv = ["python", "-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"]
for _ in range(2):
    exec(open(sys.argv[1]).read())
"""


def test_a_python_that_reads_the_file_twice_starts_one_host():
    """As one in a virtual environment does, whose `lib64` is a link to its `lib`."""
    file = Path(path_order.__file__).with_suffix(".pth")
    ran = subprocess.run([sys.executable, "-c", STARTS, str(file)], capture_output=True, text=True, check=True)
    assert ran.stdout == "started\n"
