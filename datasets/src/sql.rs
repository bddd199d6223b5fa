//! SQL schemas of the record table for three databases, and statements that load sealed Parquet files.

use crate::record::column::Kind;
use crate::record::table::COLUMNS;
use crate::record::table::Column;
use models::Choice;
use std::fmt::Write;

models::choice! {
    /// A supported database.
    pub enum Dialect {
        /// PostgreSQL.
        Postgres = "postgres",
        /// ClickHouse.
        ClickHouse = "clickhouse",
        /// DuckDB.
        DuckDb = "duckdb",
    }
}

impl Dialect {
    /// Looks up a database by name; the error lists known names.
    pub fn parse_name(name: &str) -> Result<Dialect, String> {
        Dialect::from_name(name).ok_or_else(|| format!("unknown engine `{name}`; {}", Dialect::name_hint(name)))
    }

    fn type_name(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Dialect::Postgres, Kind::Bool) => "boolean",
            (Dialect::Postgres, Kind::Integer) => "bigint",
            (Dialect::Postgres, Kind::Float) => "double precision",
            (Dialect::Postgres, Kind::Text | Kind::Label) => "text",
            (Dialect::Postgres, Kind::List) => "double precision[]",
            (Dialect::Postgres, Kind::Json) => "jsonb",
            (Dialect::Postgres, Kind::Key) => "bytea",
            (Dialect::Postgres, Kind::Time) => "timestamptz",
            (Dialect::ClickHouse, Kind::Bool) => "Bool",
            (Dialect::ClickHouse, Kind::Integer) => "Int64",
            (Dialect::ClickHouse, Kind::Float) => "Float64",
            (Dialect::ClickHouse, Kind::Text | Kind::Json) => "String",
            (Dialect::ClickHouse, Kind::Label) => "LowCardinality(String)",
            (Dialect::ClickHouse, Kind::List) => "Array(Float64)",
            (Dialect::ClickHouse, Kind::Key) => "FixedString(16)",
            (Dialect::ClickHouse, Kind::Time) => "DateTime64(6, 'UTC')",
            (Dialect::DuckDb, Kind::Bool) => "BOOLEAN",
            (Dialect::DuckDb, Kind::Integer) => "BIGINT",
            (Dialect::DuckDb, Kind::Float) => "DOUBLE",
            (Dialect::DuckDb, Kind::Text | Kind::Label | Kind::Json) => "VARCHAR",
            (Dialect::DuckDb, Kind::List) => "DOUBLE[]",
            (Dialect::DuckDb, Kind::Key) => "BLOB",
            (Dialect::DuckDb, Kind::Time) => "TIMESTAMP WITH TIME ZONE",
        }
    }

    fn column_definition(self, column: &Column) -> String {
        let kind = self.type_name(column.kind);
        match (self, column.nullable) {
            (Dialect::ClickHouse, true) => match kind.strip_prefix("LowCardinality(").and_then(|s| s.strip_suffix(')'))
            {
                Some(inner) => format!("LowCardinality(Nullable({inner}))"),
                None => format!("Nullable({kind})"),
            },
            (Dialect::ClickHouse, false) | (_, true) => kind.to_owned(),
            (_, false) => format!("{kind} NOT NULL"),
        }
    }
}

/// Columns that identify a record in a database. Attempts are numbered when a store is read, so two stores may use the
/// same number; start and run distinguish them.
pub const PRIMARY_KEY: &str = "\"key\", \"started_at_us\", \"run_id\"";

/// Returns the statement that creates the record table. ClickHouse does not enforce primary keys, so only compacted
/// parts, which have no duplicates, should be loaded.
pub fn create_statement(dialect: Dialect) -> String {
    let mut text = "CREATE TABLE records (\n".to_owned();
    for (index, column) in COLUMNS.iter().enumerate() {
        let comma = if index + 1 < COLUMNS.len() { ",\n" } else { "" };
        write!(text, "    \"{}\" {}{comma}", column.name, dialect.column_definition(column)).expect("memory takes it");
    }
    text.push_str(&match dialect {
        Dialect::Postgres | Dialect::DuckDb => format!(",\n    PRIMARY KEY ({PRIMARY_KEY})\n);\n"),
        Dialect::ClickHouse => {
            "\n) ENGINE = MergeTree ORDER BY (\"op_kind\", \"task_hash\", \"key\", \"attempt\");\n".to_owned()
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn an_unknown_database_gets_the_nearest_name() {
        assert_eq!(Dialect::parse_name("duckdb"), Ok(Dialect::DuckDb));
        let says = |name: &str| Dialect::parse_name(name).unwrap_err();
        assert_eq!(says("postgresql"), "unknown engine `postgresql`; did you mean `postgres`?");
        assert_eq!(says("click-house"), "unknown engine `click-house`; did you mean `clickhouse`?");
        assert_eq!(says("oracle"), "unknown engine `oracle`; known: `postgres`, `clickhouse`, `duckdb`");
    }

    #[test]
    fn each_database_has_its_words() {
        let names = [
            "schema_version",
            "key",
            "started_at_us",
            "place",
            "op_kind",
            "task",
            "layout",
            "samples_ns",
            "is_virtual_machine",
            "median_ns",
        ];
        let mut text = String::new();
        for &dialect in Dialect::ALL {
            let schema = create_statement(dialect);
            let wanted =
                |line: &&str| names.iter().any(|name| line.contains(&format!("\"{name}\""))) || !line.starts_with(' ');
            schema.lines().filter(wanted).for_each(|line| writeln!(text, "{line}").unwrap());
        }
        expect![[r#"
            CREATE TABLE records (
                "schema_version" bigint NOT NULL,
                "key" bytea NOT NULL,
                "started_at_us" timestamptz NOT NULL,
                "place" text,
                "op_kind" text NOT NULL,
                "task" jsonb,
                "layout" text,
                "is_virtual_machine" boolean,
                "median_ns" double precision,
                "samples_ns" double precision[] NOT NULL,
                PRIMARY KEY ("key", "started_at_us", "run_id")
            );
            CREATE TABLE records (
                "schema_version" Int64,
                "key" FixedString(16),
                "started_at_us" DateTime64(6, 'UTC'),
                "place" Nullable(String),
                "op_kind" LowCardinality(String),
                "task" Nullable(String),
                "layout" LowCardinality(Nullable(String)),
                "is_virtual_machine" Nullable(Bool),
                "median_ns" Nullable(Float64),
                "samples_ns" Array(Float64),
            ) ENGINE = MergeTree ORDER BY ("op_kind", "task_hash", "key", "attempt");
            CREATE TABLE records (
                "schema_version" BIGINT NOT NULL,
                "key" BLOB NOT NULL,
                "started_at_us" TIMESTAMP WITH TIME ZONE NOT NULL,
                "place" VARCHAR,
                "op_kind" VARCHAR NOT NULL,
                "task" VARCHAR,
                "layout" VARCHAR,
                "is_virtual_machine" BOOLEAN,
                "median_ns" DOUBLE,
                "samples_ns" DOUBLE[] NOT NULL,
                PRIMARY KEY ("key", "started_at_us", "run_id")
            );
        "#]]
        .assert_eq(&text);
    }
}
