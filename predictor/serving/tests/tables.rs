//! Tests which rows of kernel tables are read, dropped and rejected through a mapping.
#![allow(missing_docs, clippy::print_stderr)]

use serving::{Mapping, Measurements};
use std::path::{Path, PathBuf};

const MAPPING: &str = r#"
source = "somewhere"
licence = "MIT, (c) somebody"
[[tables]]
file = "gemm.csv"
kernel = "gemm"
device = "system"
choice = "library"
time = { column = "latency_ms", unit = "ms" }
sizes = { m = "m", n = "n", k = "k" }
formats = { dtype = "dtype" }
[[tables.drop]]
reason = "a known fault"
where = { library = "broken" }
"#;
const HEADER: &str = "system,library,dtype,m,n,k,latency_ms\n";

fn read(mapping: &str, rows: &str) -> Result<Measurements, String> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gemm.csv"), rows).expect("a table");
    let mapping = Mapping::parse_mapping(mapping, Path::new("m.toml")).map_err(|error| error.to_string())?;
    Measurements::read_tables(folder.path(), &mapping).map_err(|error| error.to_string())
}

#[test]
fn formats_are_told_apart_and_faults_dropped() {
    let rows = format!(
        "{HEADER}h100_sxm,a,bfloat16,64,512,512,0.01\nh100_sxm,a,fp8,64,512,512,0.008\nh100_sxm,broken,fp8,64,512,512,0.1\na100_sxm,a,fp8,64,512,512,0.1\n"
    );
    let all = read(MAPPING, &rows).expect("rows");
    let texts: Vec<String> = all.rows.iter().map(|row| row.kernel.to_string()).collect();
    assert_eq!(texts, ["gemm:m=64,n=512,k=512,dtype=bf16", "gemm:m=64,n=512,k=512,dtype=fp8"]);
    assert_eq!(all.rows[1].seconds, 8e-6);
    let reasons: Vec<(&str, u64)> = all.left_out.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(reasons, [("NVIDIA A100-SXM4-80GB does not support fp8", 1), ("a known fault", 1)]);
}

#[test]
fn rows_of_an_exception_have_its_sizes() {
    let (table, _) = MAPPING.split_once("[[tables.drop]]").expect("faults follow the sizes");
    let sizes = r#"{ tokens = "m", hidden = "n", intermediate = "k", experts = 8, top_k = 2 }"#;
    let table =
        table.replace(r#"kernel = "gemm""#, r#"kernel = "moe""#).replace(r#"{ m = "m", n = "n", k = "k" }"#, sizes);
    let exception =
        "reason = \"experts without a gate\"\nwhere = { n = \"512\", library = \"a\" }\nsizes = { matrices = 2 }\n";
    let mapping = &format!("{table}[[tables.exceptions]]\n{exception}");
    let rows = ["a,bf16,64,512", "b,bf16,64,512", "a,bf16,64,256"].map(|row| format!("h100_sxm,{row},512,0.1\n"));
    let all = read(mapping, &format!("{HEADER}{}", rows.concat())).expect("rows");
    let texts = all.rows.iter().map(|row| row.kernel.to_string());
    assert_eq!(texts.map(|text| text.ends_with(",matrices=2")).collect::<Vec<_>>(), [true, false, false]);
    let wrong = read(&mapping.replace("{ matrices", "{ matrixes"), HEADER).expect_err("no such size");
    assert!(wrong.contains("`moe` has no size `matrixes`; did you mean `matrices`"), "{wrong}");
    let rows = format!("{HEADER}h100_sxm,a,bf16,64,512,512,0.1\n");
    let none = read(&mapping.replace("matrices = 2", "matrices = 1"), &rows).expect_err("no such expert");
    assert!(none.contains("row 1: `matrices` is 1"), "{none}");
}

#[test]
fn rows_without_a_number_are_left_out() {
    let good = "h100_sxm,a,fp8,64,512,512,0.01\n";
    let bad = ["64,512,512,NaN", "64,512,512,", "64,512,512,0", "64,512,512,-1", ",512,512,0.01"];
    let bad = bad.map(|row| format!("h100_sxm,a,fp8,{row}\n")).concat();
    let all = read(MAPPING, &format!("{HEADER}{bad}{good}")).expect("rows");
    assert_eq!(all.rows.len(), 1);
    let reasons: Vec<(&str, u64)> = all.left_out.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(reasons, [("a size is missing", 1), ("time is not a positive number", 4)]);
    let long = format!("h100_sxm,a,fp8,64,512,1024,1e300\n{}", good.replace("64,512,512", "64,512,2048"));
    let left_out = read(MAPPING, &format!("{HEADER}{good}{long}")).expect("rows").left_out;
    assert_eq!(left_out["time is over a million times of the roofline"], 1);
    let none = read(MAPPING, &format!("{HEADER}{bad}")).expect_err("no row is left");
    let reasons = "has no usable row (1 row: a size is missing, 4 rows: time is not a positive number)";
    assert!(none.ends_with(reasons), "{none}");
}

#[test]
fn power_far_below_both_neighbours_is_left_out() {
    let mapping = MAPPING.replace("sizes =", "power = { watts = \"power_w\", limit = \"limit_w\" }\nsizes =");
    let row = |m: u32, watts: f64| format!("h100_sxm,a,fp8,{m},512,512,0.01,{watts},700\n");
    let watts = [300.0, 310.0, 150.0, 320.0, 250.0, 400.0, 90.0];
    let rows: String = watts.into_iter().enumerate().map(|(place, watts)| row(64 << place, watts)).collect();
    let all = read(&mapping, &format!("{},power_w,limit_w\n{rows}", HEADER.trim_end())).expect("rows");
    let kept: Vec<f64> = all.rows.iter().filter_map(|row| row.power.map(|(watts, _)| watts)).collect();
    // The last row has a neighbour on one side only, and 250 W are plausible next to 320 and 400 W.
    assert_eq!(kept, [300.0, 310.0, 320.0, 250.0, 400.0, 90.0]);
    assert_eq!(all.left_out.values().sum::<u64>(), 1, "{:?}", all.left_out);
}

#[test]
fn wrong_tables_are_refused() {
    let one = "h100_sxm,a,fp8,64,512,512,0.01\n";
    let with_stream = MAPPING.replace("file =", "version = \"stream\"\nfile =");
    let hidden = MAPPING.replace("choice = \"library\"\n", "same_as_device = \"library\"\n");
    for (mapping, rows, reason) in [
        (
            MAPPING,
            format!("{},stream\n{},1\n", HEADER.trim_end(), one.trim_end()),
            "does not mention the column `stream`",
        ),
        (&with_stream, format!("{HEADER}{one}"), "names the column `stream`, which the table lacks"),
        (MAPPING, format!("{HEADER}{one}").replace("h100_sxm", "h900"), "unknown device `h900`"),
        (MAPPING, format!("{HEADER}{one}").replace("fp8", "fp9"), "column `dtype`: unknown format `fp9`"),
        (
            MAPPING,
            format!("{HEADER}{one}").replace(",64,", ",0.5,"),
            "the size `m` is 0.5, not a positive whole number",
        ),
        (
            MAPPING,
            format!("{HEADER}h100_sxm,a,fp8,8192,8192,8192,0.0001\n"),
            "faster than the device's peak; check the sizes and the unit of the time",
        ),
        (
            MAPPING,
            format!("{HEADER}h100_sxm,a,fp8,8192,8192,8192,800\nh100_sxm,a,fp8,64,512,512,10\n"),
            "is 2634 times the roofline; check the sizes and the unit of the time",
        ),
        (
            &hidden,
            format!("{HEADER}{one}h100_sxm,b,fp8,64,512,512,0.02\n"),
            "`library` differs from earlier rows of the same device",
        ),
    ] {
        let error = read(mapping, &rows).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_file_of_another_name_is_refused_with_the_missing_columns() {
    let (head, gemm) = MAPPING.split_once("[[tables]]").expect("a table");
    let (gemm, _) = gemm.split_once("[[tables.drop]]").expect("faults follow the sizes");
    let experts = gemm.replace("gemm", "moe").replace("{ m = \"m\", n", "{ tokens = \"tokens\", hidden");
    let experts = experts.replace("k = \"k\" }", "intermediate = \"k\", experts = 8, top_k = 2 }");
    let mapping = format!("{head}[[tables]]{gemm}[[tables]]{experts}");
    let mapping = Mapping::parse_mapping(&mapping, Path::new("m.toml")).expect("two tables");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("times.csv");
    std::fs::write(&file, "system,library,dtype,m,n,latency_ms\n").expect("a table");
    let error = Measurements::read_tables(&file, &mapping).expect_err("no column `k`").to_string();
    assert!(error.contains("(`gemm.csv` also has `k`)") && error.contains("`gemm.csv`, `moe.csv`"), "{error}");
}

#[test]
fn a_broken_mapping_is_named_with_its_line() {
    let error = read("source = \"somewhere\"\nlicence =", HEADER).expect_err("no value");
    let start = "`m.toml` is not a mapping of language-model kernels: TOML parse error at line 2";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn the_public_tables_are_read_through_the_mapping_that_ships() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder: PathBuf = root.join("../shared/data/public-ops/aic");
    if !folder.is_dir() {
        eprintln!("skipped: `{}` is absent", folder.display());
        return;
    }
    let path = root.join("configs/mappings/aiconfigurator.toml");
    let mut mapping =
        Mapping::parse_mapping(&std::fs::read_to_string(&path).expect("the mapping"), &path).expect("a mapping");
    mapping.tables.retain(|table| table.file == "moe.parquet");
    let all = Measurements::read_tables(&folder, &mapping).expect("rows");
    assert!(all.rows.len() > 300_000 && all.devices.len() == 7, "{} rows", all.rows.len());
}
