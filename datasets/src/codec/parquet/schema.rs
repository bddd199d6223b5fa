//! The Parquet schema: one leaf per column, lists in the standard three-level form, times with a logical type.

use crate::record::column::Kind;
use crate::record::table::COLUMNS;
use crate::record::table::Column;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::schema::types::Type;
use std::sync::Arc;

pub(crate) const KEY_BYTES: i32 = 16;

pub(crate) fn parquet_schema() -> Type {
    let fields = COLUMNS.iter().map(|column| Arc::new(column_field(column))).collect();
    Type::group_type_builder("record").with_fields(fields).build().expect("the table is a valid schema")
}

pub(crate) fn physical_type(kind: Kind) -> Physical {
    match kind {
        Kind::Bool => Physical::BOOLEAN,
        Kind::Integer | Kind::Time => Physical::INT64,
        Kind::Float | Kind::List => Physical::DOUBLE,
        Kind::Text | Kind::Label | Kind::Json => Physical::BYTE_ARRAY,
        Kind::Key => Physical::FIXED_LEN_BYTE_ARRAY,
    }
}

fn column_field(column: &Column) -> Type {
    let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    match column.kind {
        Kind::List => list_field(column.name, repetition),
        kind => {
            let builder = Type::primitive_type_builder(column.name, physical_type(kind))
                .with_repetition(repetition)
                .with_logical_type(logical_type(kind));
            let builder = if kind == Kind::Key { builder.with_length(KEY_BYTES) } else { builder };
            builder.build().expect("a column is a valid field")
        }
    }
}

/// JSON is annotated as text, because some readers map the JSON annotation to a nonstandard type.
fn logical_type(kind: Kind) -> Option<LogicalType> {
    match kind {
        Kind::Text | Kind::Label | Kind::Json => Some(LogicalType::String),
        Kind::Time => Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
        Kind::Bool | Kind::Integer | Kind::Float | Kind::List | Kind::Key => None,
    }
}

fn list_field(name: &str, repetition: Repetition) -> Type {
    let element = Type::primitive_type_builder("element", Physical::DOUBLE).with_repetition(Repetition::REQUIRED);
    let element = element.build().expect("a float is a valid element");
    let repeated = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
    let repeated = repeated.with_fields(vec![Arc::new(element)]).build().expect("one element is a valid group");
    Type::group_type_builder(name)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(repeated)])
        .build()
        .expect("a list is a valid field")
}
