//! Tests that a panic of the Parquet library becomes an error without a message. Panic hooks need their own process.
#![allow(missing_docs)]

mod common;

use common::measured;
use datasets::{Format, Writer, read_records};
use std::panic::{set_hook, take_hook};
use std::sync::atomic::{AtomicUsize, Ordering};

/// First bytes of a dictionary page, and of other pages.
const DICTIONARY: [u8; 2] = [0x15, 0x04];
const OTHERS: [u8; 3] = [0x00, 0x02, 0x06];

#[test]
fn panics_of_the_library_are_errors() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let before = take_hook();
    set_hook(Box::new(move |info| {
        TOLD.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.parquet");
    let mut writer = Writer::new(&path, Format::Parquet, Vec::new()).unwrap();
    (0..400).for_each(|number| writer.write(&measured(number)).unwrap());
    let whole = writer.finish().unwrap();
    let pages = whole.windows(2).enumerate().filter(|(_, bytes)| *bytes == DICTIONARY).map(|(place, _)| place + 1);
    let mut panics = 0;
    for (place, other) in pages.flat_map(|place| OTHERS.map(|other| (place, other))) {
        let mut bytes = whole.clone();
        bytes[place] = other;
        std::fs::write(&path, bytes).unwrap();
        let problem = match read_records(&path, Format::Parquet) {
            Ok(records) => records.map_while(Result::err).next(),
            Err(error) => Some(error),
        };
        panics += usize::from(
            problem.is_some_and(|error| error.to_string().contains("the structure of the file is inconsistent")),
        );
    }
    assert!(panics > 0, "the library panics no more: the guard may go");
    assert_eq!(TOLD.load(Ordering::Relaxed), 0, "an error is told once");
}
