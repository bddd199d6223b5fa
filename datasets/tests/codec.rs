//! Tests that the three formats are lossless and reject invalid input.
#![allow(missing_docs)]

mod common;

use common::{any_record, measured};
use datasets::{Format, Record, Result, Writer, read_records};
use expect_test::{Expect, expect};
use models::Choice;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn write(format: Format, records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Path::new("memory"), format, Vec::new()).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap()
}

fn read_bytes(format: Format, bytes: &[u8]) -> Result<Vec<Record>> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("records").with_extension(format.name());
    std::fs::write(&path, bytes).unwrap();
    read_records(&path, format)?.collect()
}

fn check_refusal(format: Format, bytes: &[u8], expected: Expect) {
    let message = read_bytes(format, bytes).unwrap_err().to_string();
    // Removes the temporary folder from the message.
    let start = message.find("/").unwrap();
    let end = message.find("/records.").unwrap();
    expected.assert_eq(&format!("{}{}", &message[..start], &message[end + 1..]));
}

fn edited_csv(change: impl FnOnce(String) -> String) -> Vec<u8> {
    change(String::from_utf8(write(Format::Csv, &[measured(1), measured(2)])).unwrap()).into_bytes()
}

#[test]
fn an_unknown_format_gets_the_nearest_name() {
    assert!(Format::ALL.iter().all(|format| Format::parse_name(format.name()) == Ok(*format)));
    let says = |name: &str| Format::parse_name(name).unwrap_err();
    assert_eq!(says("parqet"), "unknown format `parqet`; did you mean `parquet`?");
    assert_eq!(says("CSV"), "unknown format `CSV`; did you mean `csv`?");
    assert_eq!(says("xlsx"), "unknown format `xlsx`; known: `csv`, `parquet`, `jsonl`");
}

#[test]
fn no_record_is_a_file_too() {
    for &format in Format::ALL {
        assert_eq!(read_bytes(format, &write(format, &[])).unwrap(), []);
    }
}

#[test]
fn many_records_span_batches_and_row_groups() {
    let records: Vec<Record> = (0..70_000).map(measured).collect();
    let bytes = write(Format::Parquet, &records);
    assert!(read_bytes(Format::Parquet, &bytes).unwrap() == records);
}

#[test]
fn the_same_records_give_the_same_bytes() {
    let records: Vec<Record> = (0..100).map(measured).collect();
    assert!(write(Format::Parquet, &records) == write(Format::Parquet, &records));
}

#[test]
fn a_wrong_line_is_named() {
    let mut bytes = write(Format::JsonLines, &[measured(1), measured(2)]);
    bytes.extend_from_slice(b"{\"key\":\"zz\"}\n");
    check_refusal(
        Format::JsonLines,
        &bytes,
        expect![[r#"
        cannot read record: `zz` is not a key of 32 hexadecimal digits
          at records.jsonl, line 3, field `key`"#]],
    );
    check_refusal(
        Format::JsonLines,
        b"\n{\"n\":1}\n",
        expect![[r#"
            cannot read record: required column `schema_version` is missing
              at records.jsonl, line 2, field `schema_version`
            hint: the column is required; see the column table in docs/reference/dataset-format.md"#]],
    );
}

/// Some editors begin a text file with a byte order mark.
#[test]
fn a_byte_order_mark_is_skipped() {
    let records = [measured(1), measured(2)];
    for format in [Format::JsonLines, Format::Csv] {
        let bytes = [b"\xef\xbb\xbf", write(format, &records).as_slice()].concat();
        assert_eq!(read_bytes(format, &bytes).unwrap(), records, "{format:?}");
    }
}

#[test]
fn a_wrong_csv_is_named() {
    check_refusal(
        Format::Csv,
        &edited_csv(|text| text.replacen("host", "hots", 1)),
        expect![[r#"
            cannot read record: unknown column `hots`
              at records.csv, line 1, field `hots`
            hint: did you mean `host` or `os`? rename or drop it"#]],
    );
    check_refusal(
        Format::Csv,
        &edited_csv(|text| text.replacen("990.0", "many", 1)),
        expect![[r#"
        cannot read record: `many` is not a number
          at records.csv, line 2, field `min_ns`"#]],
    );
    check_refusal(
        Format::Csv,
        &edited_csv(|text| text + "1,2,3\n"),
        expect![[r#"
            cannot read record: the row has 3 cells, but the header has 107
              at records.csv, line 4"#]],
    );
    check_refusal(
        Format::Csv,
        &edited_csv(|text| text.replacen("model_name", "batch", 1)),
        expect![[r#"
            cannot read record: duplicate column
              at records.csv, line 1, field `batch`"#]],
    );
    check_refusal(
        Format::Csv,
        b"schema_version,key\n",
        expect![[r#"
            cannot read record: required column `attempt` is missing
              at records.csv, line 1, field `attempt`
            hint: the column is required; see the column table in docs/reference/dataset-format.md"#]],
    );
    check_refusal(
        Format::Csv,
        b"",
        expect![[r#"
            cannot read record: required column `schema_version` is missing
              at records.csv, line 1, field `schema_version`
            hint: the column is required; see the column table in docs/reference/dataset-format.md"#]],
    );
    check_refusal(
        Format::Csv,
        b"\xff,\xfe\n",
        expect![[r#"
        cannot read record: cell 1 is not UTF-8
          at records.csv, line 1"#]],
    );
}

#[test]
fn a_wrong_csv_row_is_named_by_its_line() {
    let line = |bytes: &[u8]| {
        let message = read_bytes(Format::Csv, bytes).unwrap_err().to_string();
        let (_, place) = message.split_once("records.csv, line ").unwrap();
        place.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    // The second row has the wrong cell.
    let text = String::from_utf8(edited_csv(|text| {
        let last = text.rfind("990.0").unwrap();
        format!("{}many{}", &text[..last], &text[last + 5..])
    }))
    .unwrap();
    assert_eq!(line(text.as_bytes()), 3);
    assert_eq!(line(text.trim_end().as_bytes()), 3);
    assert_eq!(line(text.replace('\n', "\r\n").as_bytes()), 3);
    assert_eq!(line(text.replace('\n', "\n\n").as_bytes()), 5);
    assert_eq!(line(text.replace('\n', "\r\n\r\n").as_bytes()), 5);
    // Cells with line ends, also over several reads of the file.
    let long = format!("\"{}\"", "a line\r\n".repeat(10_000));
    let (header, rows) = text.split_once('\n').unwrap();
    let place = header.split(',').position(|name| name == "op_name").unwrap();
    let mut cells: Vec<&str> = rows.lines().next().unwrap().splitn(place + 2, ',').collect();
    cells[place] = &long;
    let text = format!("{header}\r\n{}\r\n{}", cells.join(","), rows.lines().nth(1).unwrap());
    assert_eq!(line(text.as_bytes()), 10_003);
}

#[test]
fn csv_may_order_and_drop_columns() {
    let text = "key,schema_version,attempt,run_id,started_at_us,task_hash,op_kind,op_name,op_text,target,host,host_class,\
        source,outcome,reason,n,samples_ns,program_version\n\
        000000000000000000000000000000ff,1,1,r,5,t,dense,dense,d,cuda,h,c,imported,skipped,\"not, now\",0,[],0.1.0\n";
    let records = read_bytes(Format::Csv, text.as_bytes()).unwrap();
    assert_eq!((records.len(), records[0].reason.as_deref()), (1, Some("not, now")));
}

#[test]
fn endless_lines_and_cells_are_refused() {
    let endless = vec![b'x'; datasets::limits::MAX_LINE_BYTES + 100];
    check_refusal(
        Format::JsonLines,
        &endless,
        expect![[r#"
        cannot read record: the line has more than 16777216 bytes
          at records.jsonl, line 1"#]],
    );
    check_refusal(
        Format::Csv,
        &endless,
        expect![[r#"
        cannot read record: a row has more than 16777216 bytes
          at records.csv, line 1"#]],
    );
}

#[test]
fn what_is_not_parquet_is_refused() {
    check_refusal(
        Format::Parquet,
        b"",
        expect!["cannot read `records.parquet`: the file is not Parquet or is truncated"],
    );
    check_refusal(
        Format::Parquet,
        b"PAR1, or so it says, PAR1",
        expect!["cannot read `records.parquet`: the file is not Parquet or is truncated"],
    );
    check_refusal(
        Format::Parquet,
        b"PAR1\x19\x5c\x19\xfc\x7f\x05\0\0\0PAR1",
        expect![[r#"
            cannot read `records.parquet`: Parquet error: Thrift list size 127 exceeds remaining input length 0
            hint: the file is damaged or not Parquet; copy it from its source again"#]],
    );
}

#[test]
fn a_cut_parquet_file_is_refused_wherever_it_was_cut() {
    let bytes = write(Format::Parquet, &[measured(1), measured(2)]);
    for cut in (0..bytes.len()).step_by(97) {
        assert!(read_bytes(Format::Parquet, &bytes[..cut]).is_err(), "cut at {cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_format_keeps_every_record(records in proptest::collection::vec(any_record(), 0..20)) {
        for &format in Format::ALL {
            let again = read_bytes(format, &write(format, &records)).unwrap();
            prop_assert_eq!(&again, &records, "{}", format.name());
        }
    }

    #[test]
    fn flipped_bytes_never_panic(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        format in proptest::sample::select(Format::ALL),
    ) {
        let mut bytes = write(format, &[measured(1), measured(2), measured(3)]);
        for (index, value) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= value;
        }
        let _ = read_bytes(format, &bytes);
    }

    /// Damages only the footer, which contains sizes.
    #[test]
    fn flipped_bytes_of_the_footer_never_panic(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = write(Format::Parquet, &[measured(1)]);
        let tail = bytes.len() - 8;
        let footer_bytes = u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
        for (index, value) in flips {
            bytes[tail - footer_bytes + index.index(footer_bytes)] ^= value;
        }
        let _ = read_bytes(Format::Parquet, &bytes);
    }
}
