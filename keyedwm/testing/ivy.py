"""Jars from a Maven registry, fetched once and kept, with the Apache Ivy that PySpark carries.

Rule: a directory of the cache is complete or absent. It is filled aside and renamed into place under a lock. So
processes may ask for one directory at once, and a process that dies half way leaves nothing that counts.

A jar without the SHA-256 that stands here is an error; a line changes only with the version in a jar's name. Spark's
own Kafka connector is exactly these artifacts: the rest of what they depend on is already among PySpark's jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.testing.java import complaint, find_java

HASHES: Mapping[str, str] = MappingProxyType(
    {
        "HdrHistogram-2.2.2.jar": "22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8",
        "analyticsaccelerator-s3-1.3.1.jar": "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
        "apicurio-registry-app-3.3.3-all.tar.gz": "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63",
        "argparse4j-0.7.0.jar": "65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56",
        "bundle-2.35.4.jar": "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
        "caffeine-2.9.3.jar": "1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b",
        "caffeine-3.2.0.jar": "ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7",
        "commons-beanutils-1.11.0.jar": "9e44ba68ec9a3f21286fa2a8bbb003b735c0f69101bb43144b79f4f8aaa74709",
        "commons-collections-3.2.2.jar": "eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8",
        "commons-digester-2.1.jar": "e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d",
        "commons-logging-1.3.5.jar": "6d7a744e4027649fbb50895df9497d109f98c766a637062fe8d2eabbb3140ba4",
        "commons-pool2-2.12.0.jar": "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
        "commons-validator-1.10.1.jar": "ed74711a78d793ca37f6075e4a1e93d107233dfd20d0bb17e32bad88d38e56aa",
        "hadoop-aws-3.5.0.jar": "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
        "hash4j-0.22.0.jar": "23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e",
        "httpclient5-5.6.1.jar": "1e3d8444c3c27772e4b9d42a790f06b3345a8ece4fd16d00981f2f2460e1e772",
        "httpcore5-5.4.jar": "cec2981fa7f520efb63f0787c24f10af2679e31f9f75c448c4dde40a3ae8100d",
        "httpcore5-h2-5.4.jar": "2e0f4ace15db2d1609c2b06eca6012e7582afe4a99ad8d15073f62dd8edb3460",
        "iceberg-api-1.11.0.jar": "f00675a12ceb6d833bb9c22024823a3e7afdedf7abcefe34719f45b0d211995a",
        "iceberg-bundled-guava-1.11.0.jar": "396d48d93ef5735f2ddef0cf9b3d6968ebd67b64b5cfe753d41c429d3f46a2a1",
        "iceberg-common-1.11.0.jar": "b2835d00db7c92bdfa728123ad7cdcb488e2f2805c1c51fb9ae94e8bd203bd7d",
        "iceberg-core-1.11.0-tests.jar": "4284719a5f0eb7db01e9f784a0ed4ca8bacf7d6f9951924143afc083428d8be3",
        "iceberg-core-1.11.0.jar": "53b9eb7a8c34fb9958ea7d9a4d19ba5bc96f592d0f05e8625b0778c70b1f0090",
        "iceberg-open-api-1.11.0-test-fixtures.jar": "b0aa8636d88c24976d552ac9b3075a1315dc1ccd4fa6ed95b365901842664316",
        "jackson-annotations-2.19.4.jar": "ab26383fa3c10c0df1ffd1bb035d81161c059b1af71927d73c24473c058baa16",
        "jackson-core-2.19.4.jar": "466ae4dc4f7054f51525f4211df411d9a64d65cc169995d32bf49e20e6f586e5",
        "jackson-databind-2.19.4.jar": "b781c431be870deb0bf84421e99e774c256a701f4ba678df80248f55cd16ff74",
        "jackson-dataformat-csv-2.19.4.jar": "fc06cf56909e43e0cdc84ad5e23069fcc4d503a8833bda348f47e50e8f1ac92c",
        "jackson-dataformat-yaml-2.19.4.jar": "998e652806c49ca59e2b6432c4edc37580c4702cb6189d10e6053d0b7982c2e7",
        "jackson-datatype-jdk8-2.19.4.jar": "c0e0dc3039f9a37a099b2602838f833ea8c15c56445a0eb5463d0c7e0c355da2",
        "jetty-compression-common-12.1.5.jar": "f9eaa16477daaf7ff41e5489e6d41268c42cd58888396762ef093ace819ab683",
        "jetty-compression-gzip-12.1.5.jar": "f9a3b082a4eeb0013226c9fd9e9dd60f77c1bf93a87d95e741be9553e769c7b5",
        "jetty-compression-server-12.1.5.jar": "f84f42035fec0df6815cdbff80cf324db99d0ca72d9c4922c1f7a94c7dda4e17",
        "jetty-ee10-servlet-12.1.5.jar": "ffd35e86226246c8a57ade503fae733b37e687844c726f63f02c6e5fa9220ace",
        "jetty-http-12.1.5.jar": "20a6f605e802789990855b81f75dadfa8ab152e81713080c295c333d7cce7daa",
        "jetty-io-12.1.5.jar": "9c388018412d9bd9a1b9c35ca373e25fd845706f82549f2a7039ae9fefb45e69",
        "jetty-security-12.1.5.jar": "9972b67058ad7a58a0517cd14502e67e2e1071c74b00f51c6487518f0bfdc02e",
        "jetty-server-12.1.5.jar": "e0964741f132de3bdb48ca59c4b9bb8555f966d46b660c8c88f1e157cedbaa02",
        "jetty-session-12.1.5.jar": "ebe4f30c6fe7656294d884e1dc8eea4c77b6c861e3c010847a76fd78164ae166",
        "jetty-util-12.1.5.jar": "3b165498c1409db1a2463c367250c9225635cf68cd4529fbb0610324942bbc07",
        "jopt-simple-5.0.4.jar": "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28",
        "jose4j-0.9.6.jar": "7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef",
        "jspecify-1.0.0.jar": "1fad6e6be7557781e4d33729d49ae1cdc8fdda6fe477bb0cc68ce351eafdfbab",
        "kafka-clients-3.9.1.jar": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
        "kafka-clients-4.1.2.jar": "afe861c05067f4018a3148d73c1ed1e5fc90808757c15b043527d7e535a5d431",
        "kafka-coordinator-common-4.1.2.jar": "0e6697b6827fa635b4686ec9754b1c5583f4997e9bc0f33a8518f1dee518a454",
        "kafka-group-coordinator-4.1.2.jar": "1925a002ef7c527b72a0877ed0d9f3a5f88a08d130d1ed2bdfcc40457ded354b",
        "kafka-group-coordinator-api-4.1.2.jar": "781f932fb3e3824420e7554ef745b57e1827dd801cfc71bf8fd31eef56e60638",
        "kafka-metadata-4.1.2.jar": "ccc29f5423cf5fbe63b47871dbce00a16e05a38bd0d531b3bf21e5c71ba54fac",
        "kafka-raft-4.1.2.jar": "01f6717d07472b577a1cfe1cdf4d098b14a1dae4e35574164712801bd2a55cce",
        "kafka-server-4.1.2.jar": "2b849f1c9d3d9a08a5ea4c2f0479c552592cd770d72263d8d1610701a9b3e8d4",
        "kafka-server-common-4.1.2.jar": "0f1d8fb9478ca0e3eea23b81064749738b9bff705704067e2fe8d62047e5fc07",
        "kafka-share-coordinator-4.1.2.jar": "fffacfaa46e7f25696f673035f86669422ae81889dfd28d8fec29500ee888310",
        "kafka-storage-4.1.2.jar": "902a08f775a9957e1546ecec8e22fbda73b84be9dfbdf04cce7a023dd60bf8b9",
        "kafka-storage-api-4.1.2.jar": "79910cc7d0e3d3a9d9ce6f30f6f000cd355321f604a0f6c73c948389d1b41457",
        "kafka-tools-api-4.1.2.jar": "6d4d6a33b0dcd2180e7489c58c0089f8fb502e7a095cdd46f57755df462f00ae",
        "kafka-transaction-coordinator-4.1.2.jar": "20939d46e1e65a34d6a59b447f0a5e63721678abbfdc948a5f9422930d71612c",
        "kafka_2.13-4.1.2.jar": "965af2d9c19be0c169110eb18468a0bee24e24d14071a57c7f8a57bc4d3f990e",
        "log4j-api-2.25.3.jar": "e886682920fa0fb9d6eb6395dcb4de088443f8646c89c5e5846e168e327f406f",
        "log4j-core-2.25.3.jar": "362b7fcb65b73aa46cc4bc53abf4eb216f444a83b5d1a037cb6fdfff0ae9f0f9",
        "log4j-slf4j-impl-2.25.3.jar": "f835ac2bf1a895d5e687b4ebf238bff05316dd672e572dff235024b6e320bcc9",
        "lz4-java-1.10.1.jar": "a58a84c4271e50df4c96ed916ccb7e48a869f8ed9cdcda1ad5d3d4c33b0214a3",
        "metrics-core-2.2.0.jar": "6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c",
        "pcollections-4.0.2.jar": "2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef",
        "re2j-1.8.jar": "7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7",
        "scala-library-2.13.16.jar": "1ebb2b6f9e4eb4022497c19b1e1e825019c08514f962aaac197145f88ed730f1",
        "scala-logging_2.13-3.9.5.jar": "87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545",
        "scala-reflect-2.13.16.jar": "fb49ccd9cac7464486ab993cda20a3c1569d8ef26f052e897577ad2a4970fb1d",
        "slf4j-api-1.7.36.jar": "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
        "snakeyaml-2.4.jar": "ef779af5d29a9dde8cc70ce0341f5c6f7735e23edff9685ceaa9d35359b7bb7f",
        "snappy-java-1.1.10.7.jar": "4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36",
        "spark-avro_2.13-4.2.0.jar": "4c186cedc03cbe4ee356a94b32232b347ef48611c3209400b3a77e4fe4abff4f",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar": "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
        "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar": (
            "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b"
        ),
        "sqlite-jdbc-3.54.1.0.jar": "f8dce420a6016278497f4f0560f65602b9db858de141b541cf91a4644ebe4639",
        "zstd-jni-1.5.6-10.jar": "b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df",
    }
)


QUIET_S = 2.0
REPORT_S = 10.0
STALLED_S = 120.0
_PIECE_BYTES = 1 << 20


def cache_dir() -> Path:
    """KEYEDWM_CACHE, or `keyedwm` under XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("KEYEDWM_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "keyedwm"


def fetch_jars(
    name: str, coordinates: Sequence[str], *, transitive: bool = True, hashes: Mapping[str, str] = HASHES
) -> list[Path]:
    """The jars of these coordinates, sorted by name; `name` is what people see of them.

    A coordinate is `group:artifact:version`, with a fourth part for a jar of that classifier.

    With `transitive=False` exactly the artifacts named, without what they depend on. hashes: the SHA-256 that each jar
    must have, by its name. Raises UnavailableError when the registry cannot be reached, lacks one or has another.
    """
    key = hashlib.sha256("\n".join([*sorted(coordinates), str(transitive)]).encode()).hexdigest()[:8]

    def fill(jars: Path) -> None:
        _fill(jars, name, coordinates, transitive=transitive)
        _check(sorted(jars.glob("*.jar")), hashes)

    home = kept_once(cache_dir() / "jars" / f"{name}-{key}", fill)
    return sorted(home.glob("*.jar"))


def fetch_archive(name: str, coordinate: str, *, hashes: Mapping[str, str] = HASHES) -> Path:
    """The directory with what is in a tar archive; coordinate: `group:artifact:version:classifier:tar.gz`.

    Checked as jars are.
    """

    def fill(home: Path) -> None:
        packed = home.parent / "packed"
        _fill(packed, name, [coordinate], transitive=False)
        (archive,) = _fetched(packed)
        _check([archive], hashes)
        with tarfile.open(archive) as tar:
            tar.extractall(home, filter="data")

    return kept_once(cache_dir() / "archives" / f"{name}-{hashlib.sha256(coordinate.encode()).hexdigest()[:8]}", fill)


def kept_once(home: Path, fill: Callable[[Path], None]) -> Path:
    """This directory of the cache, which `fill` fills in another place if it is not there yet."""
    if not home.is_dir():
        with _lock(home.with_name(f"{home.name}.lock")):
            if not home.is_dir():
                with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home.parent) as aside:
                    fill(Path(aside) / "whole")
                    (Path(aside) / "whole").rename(home)
    return home


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise OptionError(
            f"cannot write the cache {path.parent} ({error.strerror}): set KEYEDWM_CACHE to a directory of yours"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(jars: Path, name: str, coordinates: Sequence[str], *, transitive: bool) -> None:
    work = jars.parent
    (work / "ivy.xml").write_text(_ivy_module(coordinates, transitive=transitive))
    _run_ivy(work, jars, name)
    if not _fetched(jars):
        raise UnavailableError(f"the Maven registry gave no jar for {', '.join(coordinates)}")


def _fetched(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*") if path.suffix in {".jar", ".gz"})


def _check(jars: Sequence[Path], hashes: Mapping[str, str]) -> None:
    for jar in jars:
        digest = hash_of(jar)
        if digest != hashes.get(jar.name):
            raise UnavailableError(
                f"{jar.name} from the Maven registry has the SHA-256 {digest}, not that of keyedwm.testing.ivy: "
                "it is another file than before, or a version was changed without its hash"
            )


def hash_of(file: Path) -> str:
    """Its SHA-256, read in pieces: some jars have hundreds of megabytes."""
    digest = hashlib.sha256()
    with file.open("rb") as data:
        while piece := data.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _ivy_module(coordinates: Sequence[str], *, transitive: bool) -> str:
    lines = []
    for coordinate in coordinates:
        parts = coordinate.split(":")
        if not 3 <= len(parts) <= 5:
            raise OptionError(f"coordinate {coordinate!r} is not group:artifact:version")
        group, artifact, version, *classifier = parts[:4]
        kind = parts[4] if len(parts) == 5 else "jar"
        of_classifier = "".join(
            f'<artifact name="{artifact}" type="{kind}" ext="{kind}" m:classifier="{one}"/>' for one in classifier
        )
        lines.append(
            f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default" '
            f'transitive="{str(transitive).lower()}">{of_classifier}</dependency>'
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="keyedwm" module="jars"/><dependencies>' + "".join(lines) + "</dependencies></ivy-module>"
    )


def _run_ivy(work: Path, jars: Path, name: str) -> None:
    log = work / "log"
    command: list[str | Path] = [
        find_java(), "-cp", _ivy_jar(), "org.apache.ivy.Main", "-cache", work / "cache", "-ivy", work / "ivy.xml",
        "-confs", "default", "-types", "jar", "bundle", "tar.gz", "-retrieve",
        jars / "[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=work) as ivy:
        try:
            code = _watch(ivy, log, name)
        finally:
            ivy.kill()
    if code != 0:
        output = log.read_text(errors="replace")
        raise UnavailableError(
            f"could not fetch the jars of {name}: the Maven registry did not answer or lacks one ({complaint(output)})"
        )


def _watch(ivy: subprocess.Popen, log: Path, name: str) -> int | None:
    """Return Ivy's exit code, None if it made no progress for STALLED_S; print its progress to stderr after QUIET_S."""
    size, since, patience_s = 0, time.monotonic(), QUIET_S
    while True:
        try:
            return ivy.wait(patience_s)
        except subprocess.TimeoutExpired:
            output = log.read_text(errors="replace")
            print(
                f"fetching {name}: {output.count(chr(9) + 'found ')} jars found, {output.count('[SUCCESSFUL ]')} "
                f"fetched (once; kept in {cache_dir()})",
                file=sys.stderr,
            )
            patience_s = REPORT_S
        if log.stat().st_size != size:
            size, since = log.stat().st_size, time.monotonic()
        elif time.monotonic() - since > STALLED_S:
            return None


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    jars = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not jars:
        raise UnavailableError(
            "found no jars/ivy-*.jar in the installed PySpark: install pyspark 4.2 or newer from PyPI"
        )
    return jars[-1]


ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"


def spark_avro_jars() -> list[Path]:
    """Jars of Spark's `from_avro`, to name in `spark.jars`; raises UnavailableError as the one below."""
    return fetch_jars("spark-avro", [AVRO], transitive=False)


def spark_kafka_connector_jars() -> list[Path]:
    """Jars to name in `spark.jars`; raises UnavailableError when the registry cannot be reached."""
    return fetch_jars("spark-kafka-connector", ARTIFACTS, transitive=False)
