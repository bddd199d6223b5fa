//! Reads arbitrary bytes as a profiling report of TVM, such as that in `collector/profile/tests/import.rs`.

use profile::import::tvm;

pub fn run(bytes: &[u8]) {
    let (report, _) = tvm::parse_report(bytes).expect("memory can be read");
    report.to_table(100);
    report.to_csv().expect("rows are texts");
    let text = serde_json::to_vec(&report).expect("a report is text");
    let (again, found) = tvm::parse_report(text.as_slice()).expect("memory can be read");
    assert_eq!((&again, found.malformed), (&report, 0));
}
