"""Bad input to an Iceberg table: one sentence each, before a row is written."""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestampType

from keyedwm.core.errors import FormatError, InputError, KeyedwmError, OptionError
from pyspark_wm_sink.iceberg.catalog import open_table, without_secrets
from pyspark_wm_sink.options.sink_options import SinkOptions
from pyspark_wm_sink.tables.publish import publish
from tests.sink.iceberg_sink import NAME, catalog_of, files, how, numbers, options, stage_rows

SQL = {"table": NAME, "catalog.type": "sql", "catalog.uri": "sqlite:///x.db"}
REST = {"table": NAME, "catalog.type": "rest", "catalog.uri": "http://localhost:8181"}
NOT_OPENED = "the sql catalog default could not be opened: "


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"table": NAME}, "option catalog.type is missing: the kind of catalog that holds the table db.t is expected"),
        ({"catalog.type": "sql"}, "option table is missing: the name of an Iceberg table with its namespace is"),
        ({"table": "orders", "catalog.type": "sql"}, "option table: 'orders' is wrong; the name of an Iceberg table"),
        ({"table": NAME, "catalog.type": "sqll"}, "option catalog.type: 'sqll' is wrong"),
        ({"table": NAME, "catalog.type": "rest"}, "option catalog.uri is missing: the address of the rest catalog is"),
        ({**SQL, "path": "t"}, "options catalog.type and path name two targets, an Iceberg table and a Delta"),
        ({**SQL, "topic": "t"}, "options catalog.type and topic name two targets, an Iceberg table and Kafka"),
        ({**SQL, "branch": "a.b"}, "option branch: 'a.b' is wrong; the name of a branch is expected, without dots"),
        ({**SQL, "errorsTo": NAME}, "option errorsTo: 'db.t' is wrong; that is the table of the results"),
        ({**SQL, "createtables": "true"}, "option createtables is unknown to the keyedwm sink: did you mean create"),
        ({**SQL, "catalog.token": "env:NOT_THERE"}, "option catalog.token: there is no environment variable 'NOT"),
        ({**REST, "catalog.auth": "{}"}, "option catalog.auth is not supported: use catalog.credential=ID:SECRET or"),
        ({**REST, "catalog.auth.type": "oauth2"}, "option catalog.auth.type is not supported: use catalog.credential="),
        ({**SQL, "catalog.uri": "env:NOT_THERE"}, "option catalog.uri: there is no environment variable 'NOT"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named_with_the_right_one(options, sentence):
    with pytest.raises(OptionError, match=re.escape(sentence)):
        SinkOptions.parse(options)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"createTable": "false"}, "option table: there is no table db.t in the catalog default: correct the name,"),
        ({"table": "elsewhere.t"}, "option table: there is no namespace elsewhere in the catalog default: correct the"),
        ({"partitionBy": "day(m)"}, "option partitionBy: the rows have no column m (n)"),
        ({"partitionBy": "fortnight(n)"}, "option partitionBy: 'fortnight(n)' is wrong; a column, or one of year(c)"),
        ({"partitionBy": "bucket(0, n)"}, "option partitionBy: 'bucket(0, n)' is wrong"),
        ({"partitionBy": "day(n)"}, "the Iceberg table db.t could not be created: "),
        ({"catalog.uri": "sqlite:////nowhere/at/all.db"}, f"{NOT_OPENED}the SQLite file that option catalog.uri names"),
        ({"catalog.uri": "no-address"}, f"{NOT_OPENED}option catalog.uri is no address of a database: one such as "),
        ({"catalog.uri": "sqllite:////data/c.db"}, f"{NOT_OPENED}option catalog.uri is no address of a database: "),
        ({"catalog.uri": "sqlite://data/c.db"}, f"{NOT_OPENED}option catalog.uri is no address of a database: "),
    ],
)  # fmt: skip
def test_a_table_that_is_not_there_or_cannot_be_made_is_refused(more, sentence, tmp_path):
    with pytest.raises(OptionError) as error:
        how(tmp_path, **more)
    assert str(error.value).startswith(sentence)
    assert "Background on this error" not in str(error.value)


def test_the_address_of_a_catalog_may_stand_in_a_variable_or_a_file(tmp_path, monkeypatch):
    address = "postgresql+psycopg2://me:geheim@host/lake"
    monkeypatch.setenv("LAKE", address)
    (tmp_path / "lake").write_text(f"{address}\n")
    for reference in ("env:LAKE", f"file:{tmp_path}/lake"):
        assert SinkOptions.parse({**SQL, "catalog.uri": reference}).target.catalog["uri"] == address


def test_a_catalog_that_is_not_there_is_not_made_by_looking_for_a_table_in_it(tmp_path):
    missing = tmp_path / "catalgo.db"
    with pytest.raises(OptionError, match=r"the SQLite file that option catalog\.uri names is not there: correct the"):
        open_table(NAME, "default", {"type": "sql", "uri": f"sqlite:///{missing}"})
    assert not missing.exists()


def test_a_catalog_that_is_made_again_at_its_path_is_the_new_one(tmp_path):
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path)}
    how(tmp_path)
    assert open_table(NAME, "default", catalog) is not None
    for catalog_file in tmp_path.glob("catalog.db*"):
        catalog_file.unlink()
    catalog_of(tmp_path)
    assert open_table(NAME, "default", catalog) is None
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize(
    ("names", "kind", "sentence"),
    [
        ("n", IntegerType(), "n: long in the rows, integer in the table"),
        ("m", IntegerType(), "m: integer in the table, missing in the rows; n: long in the rows"),
        ("N", IntegerType(), "n: spelled N in the table"),
        ("nN", LongType(), "n: the table has n and N, which are one name to Spark"),
        ("n", TimestampType(), "n: long in the rows, timestamp_ntz in the table"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_with_the_column_and_both_types(names, kind, sentence, tmp_path):
    columns = [NestedField(number, name, kind) for number, name in enumerate(names, 1)]
    catalog_of(tmp_path).create_table(NAME, Schema(*columns))
    with pytest.raises(KeyedwmError, match=rf"the Iceberg table db\.t has another schema than the rows \({sentence}"):
        how(tmp_path)
    assert files(tmp_path) == 0


@pytest.mark.parametrize(
    ("required", "cure"), [(False, "mergeSchema=true adds .* writes null in"), (True, "cast, add")]
)
def test_the_cure_of_a_column_that_the_rows_lack_is_null_where_the_table_takes_it(required, cure, tmp_path):
    columns = [NestedField(1, "n", LongType()), NestedField(2, "m", LongType(), required=required)]
    catalog_of(tmp_path).create_table(NAME, Schema(*columns))
    with pytest.raises(InputError, match=rf"m: long in the table, missing in the rows\); nothing was written; {cure}"):
        how(tmp_path)


def test_required_fields_inside_columns_are_refused(tmp_path):
    inside = StructType(NestedField(2, "a", StringType(), required=True))
    catalog_of(tmp_path).create_table(NAME, Schema(NestedField(1, "s", inside)))
    with pytest.raises(KeyedwmError, match=r"has required fields inside its columns \(s\.a\)"):
        how(tmp_path, schema=pa.schema([("s", pa.struct([("a", pa.string())]))]))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [('{"version":2}', "has format version 2, this keyedwm reads version 1"), ("{", "is damaged: ")],
)
def test_a_property_of_a_newer_version_or_that_is_damaged_is_refused(value, sentence, tmp_path):
    to = how(tmp_path)
    message = stage_rows(to, [1])
    with catalog_of(tmp_path).load_table(NAME).transaction() as transaction:
        transaction.set_properties({"keyedwm.main.q": value})
    with pytest.raises(FormatError, match=rf"a table property keyedwm\.\* of the table {sentence}"):
        publish(to, [message], batch=0)
    assert files(tmp_path) == 0


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"write.parquet.compression-codec": "lzo"}, "write.parquet.compression-codec=lzo, one of zstd,"),
        ({"write.metadata.metrics.column.n": "some"}, "Unsupported metrics mode: some"),
        ({"commit.manifest-merge.enabled": "maybe"}, "Could not parse table property commit.manifest-merge.enabled"),
    ],
)  # fmt: skip
def test_a_wrong_property_of_the_table_is_refused_before_rows_are_staged(properties, sentence, tmp_path):
    how(tmp_path)
    with catalog_of(tmp_path).load_table(NAME).transaction() as transaction:
        transaction.set_properties(properties)
    with pytest.raises(InputError, match=rf"the Iceberg table db\.t has a wrong property \({sentence}.*: correct it"):
        how(tmp_path)


def test_a_tag_is_no_branch(tmp_path):
    how(tmp_path, branch="made")
    table = catalog_of(tmp_path).load_table(NAME)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()
    with pytest.raises(OptionError, match=r"option branch: v1 is a tag of the Iceberg table db\.t"):
        how(tmp_path, branch="v1")


def test_a_login_of_the_catalog_shows_nowhere(tmp_path):
    secret = "geheim-42"  # noqa: S105 - of this test
    uri = f"postgresql+psycopg2://me:{secret}@127.0.0.1:1/x"
    for settings in (
        {"catalog.uri": uri},
        {"catalog.type": "rest", "catalog.uri": "http://127.0.0.1:1", "catalog.token": secret},
        {"catalog.type": "rest", "catalog.uri": f"http://127.0.0.1:1/?token={secret}"},
        {"catalog.type": "rest", "catalog.uri": f"http://me:{secret}/more@127.0.0.1:1"},
        {"catalog.type": "rest", "catalog.uri": "http://127.0.0.1:1", "catalog.header.Authorization": f"{secret}\n"},
    ):
        with pytest.raises(KeyedwmError) as error:
            how(tmp_path, **settings)
        assert secret not in f"{error.value!r} {error.value.__cause__!r}"
    of_store = {"account-key": secret, "connection-string": f"AccountName=a;AccountKey={secret};EndpointSuffix=x"}
    for name, value in of_store.items():
        settings = {"catalog.type": "rest", "catalog.uri": "http://127.0.0.1:1", f"catalog.adls.{name}": value}
        target = SinkOptions.parse({"table": NAME, **settings}).target
        assert secret not in without_secrets(f"no such account: {secret}", target.catalog)
    to = how(tmp_path, **{"catalog.s3.secret-access-key": secret})
    assert secret not in repr(to)
    assert secret not in repr(SinkOptions.parse(options(tmp_path, **{"catalog.token": secret})))


@pytest.mark.parametrize("secret", ["geheim-42", "geheim/4 2+"])
def test_the_secret_of_a_credential_that_a_token_server_repeats_shows_nowhere(secret):
    for properties in ({"credential": f"me:{secret}"}, {"header.authorization": f"Bearer {secret}"}):
        for secret_text in (secret, quote(secret), quote_plus(secret)):
            repeated = without_secrets(
                f"no such client: client_id=me&client_secret={secret_text}&scope=catalog", properties
            )
            assert repeated == "no such client: client_id=me&client_secret=***&scope=catalog"


@pytest.mark.parametrize("name", ["adls.account-key", "adls.connection-string"])
def test_secrets_of_stores_are_read_from_where_the_option_says(name, monkeypatch):
    monkeypatch.setenv("OF_STORE", "geheim-42")
    assert SinkOptions.parse({**SQL, f"catalog.{name}": "env:OF_STORE"}).target.catalog[name] == "geheim-42"


def test_a_missing_pyiceberg_is_named_with_the_extra():
    program = (
        "import sys; sys.modules['pyiceberg'] = None\n"
        "from pyspark.sql.types import StructType\n"
        "from pyspark_wm_sink.writer import stream_writer\n"
        f"stream_writer({SQL!r}, StructType().add('n', 'long'), False)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert (
        "OptionError: option table: an Iceberg table is written with PyIceberg, which is not installed"
        in process.stderr
    )
    assert "pip install 'keyedwm[iceberg]'" in process.stderr
