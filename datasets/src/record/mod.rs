//! The record: one attempt to measure one candidate, as a flat row. `table` declares the columns. This module generates
//! the `Record` struct and `COLUMNS`, through which codecs, schemas and documentation access rows without naming
//! columns.

pub mod batch;
pub mod cell;
pub mod certainty;
pub mod check;
pub mod choose;
pub mod column;
pub mod experiment;
pub mod json;
pub mod key;
mod lean;
pub mod network;
mod products;
pub(crate) mod serial;
pub mod standing;
pub mod table;
pub mod visits;
pub mod words;

macro_rules! columns {
    ($( $group:literal { $( $(#[doc = $doc:literal])+ $name:ident : $type:ty = $kind:ident, $unit:literal, $known:ident, since $since:literal; )+ } )+) => {

        /// One attempt to measure one candidate, as one row.
        /// Start from `Record::default()`, fill in known columns, then call `check`.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Record {
            $($(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nUnit: ", $unit, ".")]
                pub $name: $type,
            )+)+
        }

        /// The columns in table order; `as usize` is the index into `COLUMNS`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types, missing_docs)]
        pub enum ColumnId { $($( $name, )+)+ }

        /// All columns in file order.
        pub const COLUMNS: &[Column] = &[$($(
            Column {
                id: ColumnId::$name,
                name: stringify!($name),
                group: $group,
                kind: Kind::$kind,
                unit: $unit,
                nullable: <$type as Field>::NULLABLE,
                doc: concat!($($doc),+),
                since: $since,
                known: KnownWhen::$known,
            },
        )+)+];

        // A column's kind decides its storage in files, its type the access in programs; both must agree.
        $($( const _: () = assert!(Kind::$kind.stores(<$type as Field>::STORAGE), stringify!($name)); )+)+

        impl Record {
            pub(crate) fn empty() -> Record {
                Record { $($( $name: <$type as Field>::empty(), )+)+ }
            }

            /// Returns the value of one column.
            pub fn cell(&self, id: ColumnId) -> Cell<'_> {
                match id { $($( ColumnId::$name => self.$name.cell(), )+)+ }
            }

            /// Sets the value of one column.
            pub fn set(&mut self, id: ColumnId, cell: Cell<'_>) -> Result<(), RowError> {
                match id { $($( ColumnId::$name => self.$name = <$type as Field>::from_cell(cell)?, )+)+ }
                Ok(())
            }

            pub(super) fn take<'de, A: MapAccess<'de>>(&mut self, id: ColumnId, map: &mut A) -> Result<(), A::Error> {
                match id { $($( ColumnId::$name => self.$name = map.next_value::<$type>()?, )+)+ }
                Ok(())
            }
        }

        impl ColumnId {
            /// Looks up a column by name.
            pub fn from_name(name: &str) -> Option<ColumnId> {
                match name { $($( stringify!($name) => Some(ColumnId::$name), )+)+ _ => None }
            }
        }
    };
}
use columns;

/// Version of the table that this program writes; older versions can be read.
pub const SCHEMA_VERSION: i64 = 7;

impl Default for table::Record {
    /// Returns a record with the current schema version and attempt 1.
    fn default() -> table::Record {
        let mut record = table::Record::empty();
        record.schema_version = SCHEMA_VERSION;
        record.attempt = 1;
        record
    }
}
