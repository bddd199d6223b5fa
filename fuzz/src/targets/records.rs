//! Reads arbitrary bytes as records; the result is an error or valid records. The first byte selects the format: `0`
//! CSV, `1` Parquet, `2` JSON lines. Useful seeds are exports of a small store after such a byte.

use datasets::{Format, read_records};
use models::Choice;

pub fn run(bytes: &[u8]) {
    let [choice, bytes @ ..] = bytes else { return };
    let format = Format::ALL[usize::from(*choice) % Format::ALL.len()];
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("a temporary file can be written");
    if let Ok(records) = read_records(file.path(), format) {
        for record in records.map_while(Result::ok).take(10_000) {
            record.check().expect("records that were read are valid");
        }
    }
}
