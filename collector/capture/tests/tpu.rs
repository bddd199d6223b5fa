//! Tests of TPU captures, from raw bytes to reports.
#![allow(missing_docs)]

#[path = "tpu/card.rs"]
mod card;

use capture::tpu::chip::Engine;
use capture::tpu::import::{self, CaptureProvenance, Per};
use capture::tpu::{self, Reading, Timeline, book, compare, page, read_capture, reginfo, summary, trace};
use capture::trace::{Error, QueryBounds, Value};
use card::{File, small_core};
use expect_test::expect;
use std::path::Path;

fn view(cores: &[(u32, File)], reading: &Reading) -> Timeline {
    let folder = tempfile::tempdir().unwrap();
    read_capture(&card::write(folder.path(), cores), reading).unwrap()
}

fn lines(timeline: &Timeline, core: usize, engine: Engine) -> Vec<String> {
    let core = &timeline.cores[core];
    let line = |event: capture::tpu::event::Event<'_>| {
        let kernel = event.stream_place().and_then(|place| place.function).unwrap_or("-");
        let (record, name) = (event.record, event.operation_names().name);
        format!("{}..{} {} {name} in {kernel}", record.start, record.end, record.cycles)
    };
    timeline.core_events(core, engine).map(line).collect()
}

#[test]
fn a_small_capture_gives_the_expected_figures() {
    let timeline = view(&[(0, small_core(0))], &Reading::default());
    assert_eq!(timeline.losses.count, 0, "{:?}", timeline.losses);
    expect![[r#"
        [
            "10..509 500 MM2_NN in mm",
            "610..1109 500 data_convert in mm",
        ]
    "#]]
    .assert_debug_eq(&lines(&timeline, 0, Engine::Tiu));
    expect![[r#"
        [
            "0..999 1000 tensorLd in mm",
            "1010..1209 200 tensorSt in mm",
        ]
    "#]]
    .assert_debug_eq(&lines(&timeline, 0, Engine::Gdma));
    let rows = summary::sum_timeline(&timeline).unwrap().text_rows();
    // (1000 + 1200) / 1209; 1000 / 1209; (65536 + 8192) / 1200.
    let overall = "Overall 181.97% 1.209 82.71% 1.000(us) 100.00% 1.200(us) 61.44 0.00 0.000(us) 0.00";
    assert_eq!(rows[0].join(" "), "0 181.97% 1.209 82.71% 1000 100.00% 1200 61.44 0.00 0 0.00");
    assert_eq!(rows[1].join(" "), overall);
}

#[test]
fn registers_determine_the_work_of_a_matrix_product() {
    // The preamble, in which each handshake has its own descriptor, then an fp32 product of 78 x 384 and 384 x 64.
    let send = card::descriptor(128, &[(3, 1, 1), (32, 5, 6), (37, 3, 3)]);
    let wait = card::descriptor(128, &[(41, 4, 15), (45, 5, 9)]);
    let product = card::descriptor(
        256,
        &[(0, 1, 1), (41, 4, 2), (45, 5, 5), (52, 3, 2), (64, 16, 78), (96, 16, 64), (112, 16, 384), (128, 3, 2)],
    );
    let (mut tiu, gdma, mut nodes) = card::preamble();
    tiu.push([2000, 2499, 0, 0]);
    nodes.extend([card::reset(0), card::node(0, 2, 5, 2)]);
    let file = File::default().tiu(&tiu).gdma(&gdma).nodes(&nodes);
    let file = file.extras(&[send.clone(), wait.clone(), send, wait, product]);
    let timeline = view(&[(0, file)], &Reading::default());
    assert_eq!(timeline.losses.count, 0, "{:?}", timeline.losses);
    let event = timeline.core_event(&timeline.cores[0], Engine::Tiu, 0);
    assert_eq!(event.operation_names().name, "mm2.nt");
    let work = capture::tpu::event::tiu::event_work(&event);
    // 2 x 78 x 64 x 384 operations of the algorithm; the hardware pads rows to 64 lanes; 512 operations per cycle.
    assert_eq!((work.asked, work.done, work.cycles), (3_833_856, 6_291_456, 7488));
    let mut registers = Vec::new();
    event.list_registers(&mut |prefix, name, value| registers.push((format!("{prefix}{name}"), value)));
    assert!(registers.contains(&("des_opd1_w".to_owned(), capture::tpu::event::Value::Big(384))));
}

fn generated_core() -> File {
    let tiu = [[2000, 2399, 0, 3 << 1], [3000, 3399, 1, 3 << 1]];
    let gdma = [0, 1, 2, 3].map(|id| [1900 + 500 * id, 2199 + 500 * id, id, 0, 4096, 64]);
    let mut nodes = vec![card::reset(0), card::reset(1)];
    // Generators 15 and 7: a product, a load, a copy, and a number without a generator.
    nodes.extend([card::generated(0, 15, 4), card::generated(1, 7, 2), card::generated(1, 7, 0)]);
    nodes.extend([card::generated(1, 26, 0), card::node(0, 2, 4, 1)]);
    nodes.push(card::node(1, 0, 0, card::route(1, card::DDR, card::LMEM)));
    File::default().tiu(&tiu).gdma(&gdma).nodes(&nodes)
}

#[test]
fn commands_of_generators_have_no_element_type() {
    let folder = tempfile::tempdir().unwrap();
    let timeline =
        read_capture(&card::write_of("7", folder.path(), &[(0, generated_core())]), &Reading::default()).unwrap();
    assert_eq!(timeline.losses.count, 0, "{:?}", timeline.losses);
    let core = &timeline.cores[0];
    let mut text = Vec::new();
    for engine in [Engine::Tiu, Engine::Gdma] {
        for event in timeline.core_events(core, engine) {
            let mut keys = Vec::new();
            event.list_info(&mut |key, _| keys.push(key.to_owned()));
            event.list_registers(&mut |prefix, key, _| keys.push(format!("{prefix}{key}")));
            let typed = ["Data Type", "src_data_format", "des_opt_res0_prec"];
            let typed: Vec<&str> = typed.into_iter().filter(|key| keys.iter().any(|known| known == key)).collect();
            text.push(format!("{}: {}", event.operation_names().name, typed.join(", ")));
        }
    }
    assert_eq!(
        text,
        [
            "rvt_fmm2_nn: ",
            "MM2_NN: des_opt_res0_prec",
            "rvt_dma_ld: ",
            "rvt_dma_cp: ",
            "unknown: ",
            "tensorLd: Data Type, src_data_format"
        ]
    );
    let rows = import::to_records(&timeline, &provenance(), Per::Operator).unwrap();
    let rows: Vec<_> = rows.iter().map(|row| (row.op_text.as_str(), row.dtype.as_deref())).collect();
    assert_eq!(
        rows,
        [
            ("TIU smm2 rvt_fmm2_nn", None),
            ("TIU mm/mm2 MM2_NN FP16", Some("fp16")),
            ("GDMA dma_tensor rvt_dma_ld DDR->LMEM bytes=4096", None),
            ("GDMA dma_tensor rvt_dma_cp bytes=4096", None),
            ("GDMA rvt unknown bytes=4096", None),
            ("GDMA DMA_tensor tensorLd FP16 DDR->LMEM bytes=4096", Some("fp16")),
        ]
    );
}

#[test]
fn records_without_commands_become_rows_without_type_and_direction() {
    let folder = tempfile::tempdir().unwrap();
    let (mut tiu, mut gdma, _) = card::preamble();
    tiu.push([2000, 2499, 0, 0]);
    gdma.push([1990, 2989, 0, 0, 65536, 1024]);
    let capture = card::write(folder.path(), &[(0, File::default().tiu(&tiu).gdma(&gdma))]);
    let rows = import::to_records(&read_capture(&capture, &Reading::default()).unwrap(), &provenance(), Per::Operator)
        .unwrap();
    let rows: Vec<_> = rows.iter().map(|row| (row.op_text.as_str(), row.dtype.as_deref())).collect();
    assert_eq!(rows, [("TIU unknown unknown", None), ("GDMA unknown unknown bytes=65536", None)]);
}

#[test]
fn conflict_ratios_are_rounded_like_the_vendors_tool() {
    let folder = tempfile::tempdir().unwrap();
    let ratios = |file: File| {
        let timeline = read_capture(&card::write_of("7", folder.path(), &[(0, file)]), &Reading::default()).unwrap();
        let mut ratios = Vec::new();
        for event in timeline.core_events(&timeline.cores[0], Engine::Tiu) {
            event.list_info(&mut |key, value| {
                if key == "Bank Conflict Ratio" {
                    value.append_to(&mut ratios);
                    ratios.push(b' ');
                }
            });
        }
        String::from_utf8(ratios).unwrap()
    };
    // Three of 400 cycles are 0.75 %, a tie that rounds to the even 0.8. Of 400.0001 cycles they are slightly less.
    assert_eq!(ratios(generated_core()), "0.8% 0.8% ");
    let product = card::descriptor(256, &[(0, 1, 1), (41, 4, 2), (45, 5, 5), (64, 16, 78), (96, 16, 64)]);
    let records = [[2000, 2399, 0, 3 << 1]];
    let nodes = [card::reset(0), card::node(0, 2, 5, 2)];
    assert_eq!(ratios(File::default().tiu(&records).nodes(&nodes).extras(&[product])), "0.7% ");
}

/// The two records that disabling the profiler causes. They move no data and have no node.
const MARKERS: [[u32; 6]; 2] = [[9000, 9012, 0, 0, 0, 0], [9100, 9112, 1, 0, 0, 0]];

#[test]
fn markers_of_the_profiler_do_not_take_the_commands_of_the_last_kernel() {
    // Two kernels of two transfers each: the markers span as many numbers as each kernel.
    let (mut tiu, mut gdma, mut nodes) = card::preamble();
    tiu.push([2000, 2499, 0, 0]);
    gdma.extend([[2000, 2999, 0, 0, 65536, 1024], [3000, 3199, 1, 8192, 0, 128]]);
    gdma.extend([[4000, 4299, 0, 16384, 0, 256], [5000, 5399, 1, 0, 32768, 512]]);
    gdma.extend(MARKERS);
    let load = card::node(1, 0, 0, card::route(1, card::DDR, card::LMEM));
    let store = card::node(1, 0, 0, card::route(1, card::LMEM, card::DDR));
    nodes.extend(card::kernel("mm"));
    nodes.extend([card::reset(0), card::reset(1), load, card::node(0, 2, 4, 1), store, card::KERNEL_END]);
    nodes.extend(card::kernel("add"));
    nodes.extend([card::reset(1), store, load, card::KERNEL_END]);
    let file = File::default().tiu(&tiu).gdma(&gdma).nodes(&nodes);
    let timeline = view(&[(0, file.clone())], &Reading::default());
    assert_eq!(timeline.losses.count, 0, "{:?}", timeline.losses);
    expect![[r#"
        [
            "0..999 1000 tensorLd in mm",
            "1000..1199 200 tensorSt in mm",
            "2000..2299 300 tensorSt in add",
            "3000..3399 400 tensorLd in add",
        ]
    "#]]
    .assert_debug_eq(&lines(&timeline, 0, Engine::Gdma));
    assert_eq!(timeline.tail_ns, 9112 - 2000, "host calls are placed by the last record, markers included");
    // The vendor's tool removes the markers too, but only after the pairing, so all commands are shifted by one kernel.
    let compat = view(&[(0, file)], &Reading { compat: true, ..Reading::default() });
    expect![[r#"
        [
            "0..999 1000 unknown in -",
            "1000..1199 200 unknown in -",
            "2000..2299 300 tensorLd in mm",
            "3000..3399 400 tensorSt in mm",
        ]
    "#]]
    .assert_debug_eq(&lines(&compat, 0, Engine::Gdma));
}

#[test]
fn a_last_kernel_of_messages_is_no_marker() {
    // A kernel that ends the capture with a send and a wait like the profiler does, but both have commands.
    let ends = |markers: &[[u32; 6]]| {
        let (tiu, mut gdma, mut nodes) = card::preamble();
        gdma.extend([[2000, 2999, 0, 0, 65536, 1024], [3000, 3199, 1, 8192, 0, 128], [3300, 3499, 2, 8192, 0, 128]]);
        gdma.extend([[4000, 4010, 0, 0, 0, 0], [4020, 6000, 1, 0, 0, 0], [6100, 6199, 2, 0, 4096, 64]]);
        gdma.extend([[7000, 7010, 0, 0, 0, 0], [7020, 8000, 1, 0, 0, 0]]);
        gdma.extend(markers);
        let data = card::node(1, 0, 0, card::route(1, card::DDR, card::LMEM));
        let (send, wait) = (card::node(1, 6, 3, 0), card::node(1, 6, 4, 0));
        nodes.extend([card::reset(1), data, data, data, card::reset(1), send, wait, data, card::reset(1), send, wait]);
        let timeline = view(&[(0, File::default().tiu(&tiu).gdma(&gdma).nodes(&nodes))], &Reading::default());
        timeline.cores[0].streams[1].records.iter().filter(|record| record.command != u32::MAX).count()
    };
    // Trimming drops the last pair of messages, whether or not the profiler's own pair follows.
    assert_eq!((ends(&[]), ends(&MARKERS)), (6, 6));
}

#[test]
fn markers_do_not_take_the_commands_of_a_compiled_model() {
    let (mut tiu, mut gdma, _) = card::preamble();
    tiu.push([2500, 2999, 0, 8]);
    gdma.extend([[2000, 2999, 0, 0, 65536, 1024], [3000, 3199, 1, 8192, 0, 128]]);
    gdma.extend(MARKERS);
    let data = card::descriptor(768, &[(544, 13, 1 << 8), (608, 13, 31 << 8)]);
    let file = File::default().tiu(&tiu).gdma(&gdma).block(14, &[data.clone(), data].concat());
    let folder = tempfile::tempdir().unwrap();
    let capture = card::write(folder.path(), &[(0, file)]);
    let global = capture.join("global.profile");
    std::fs::write(&global, format!("bmodel\n{}", std::fs::read_to_string(&global).unwrap())).unwrap();
    let cycles = |compat| {
        let timeline = read_capture(&capture, &Reading { compat, ..Reading::default() }).unwrap();
        let records = &timeline.cores[0].streams[1].records;
        records.iter().map(|record| record.cycles).collect::<Vec<_>>()
    };
    assert_eq!(cycles(false), [1000, 200]);
    assert!(cycles(true).is_empty(), "the vendor's tool drops the work for the markers, and then the markers");
}

#[test]
fn a_wrapped_counter_keeps_order_and_commands() {
    let straight = view(&[(0, small_core(0))], &Reading::default());
    // The counter wraps around between the two matrix commands.
    let turned = view(&[(0, small_core(0u32.wrapping_sub(2550)))], &Reading::default());
    for engine in [Engine::Tiu, Engine::Gdma] {
        assert_eq!(lines(&turned, 0, engine), lines(&straight, 0, engine));
    }
    // The vendor's tool treats it as an overrun ring buffer and moves the later records to the front.
    let compat = view(&[(0, small_core(0u32.wrapping_sub(2550)))], &Reading { compat: true, ..Reading::default() });
    assert_ne!(lines(&compat, 0, Engine::Tiu), lines(&straight, 0, Engine::Tiu));
}

#[test]
fn a_core_keeps_its_number_when_another_is_missing() {
    let cores = [(0, small_core(0)), (2, small_core(77))];
    let timeline = view(&cores, &Reading::default());
    assert_eq!(timeline.cores.len(), 3);
    assert!(lines(&timeline, 1, Engine::Tiu).is_empty());
    assert_eq!(lines(&timeline, 2, Engine::Tiu), lines(&timeline, 0, Engine::Tiu), "cores are put on one clock");
    assert_eq!(timeline.losses.count, 1, "the missing file is reported");
    let compat = view(&cores, &Reading { compat: true, ..Reading::default() });
    assert_eq!(compat.cores.len(), 2);
}

#[test]
fn damage_affects_the_smallest_unit_and_is_reported() {
    let whole = small_core(0);
    let mut unknown = whole.clone();
    unknown.0.splice(0..0, [200, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4]);
    let mut cut = whole.clone();
    cut.0.truncate(whole.0.len() - 6);
    let mut record = File::default();
    record.0.extend([3, 0, 0, 0, 20, 0, 0, 0]);
    record.0.extend([0; 20]);
    let nodes = File::default().tiu(&[[1, 2, 0, 0]]).nodes(&[77, card::node(7, 0, 0, 0), 9]);
    let cases = [
        (unknown, "unknown type 200", 4),
        (cut, "bytes are left", 4),
        (record, "not a complete record", 1),
        (nodes, "unknown type 77", 1),
        (File(vec![3, 0, 0], Vec::new()), "inside a block header", 0),
        (File::default().block(3, &[]).block(6, &[255; 12]), "is truncated", 0),
    ];
    for (file, reported, records) in cases {
        let folder = tempfile::tempdir().unwrap();
        // A second, intact core shows that a broken file does not affect others.
        let capture = card::write(folder.path(), &[(0, file.clone()), (1, small_core(5))]);
        let timeline = read_capture(&capture, &Reading::default()).unwrap();
        let losses: Vec<String> = timeline.losses.described.iter().map(ToString::to_string).collect();
        assert!(losses.iter().any(|loss| loss.contains(reported)), "{reported}: {losses:?}");
        assert!(timeline.losses.count >= 1);
        assert_eq!(lines(&timeline, 1, Engine::Tiu).len(), 2, "{reported}");
        let raw = &timeline.cores[0].streams[0].records;
        assert!(raw.len() <= records, "{reported}: {} records", raw.len());
    }
}

#[test]
fn records_that_are_declared_and_missing_are_losses() {
    let reported = |damage: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        let capture = card::write(folder.path(), &[(0, small_core(0)), (1, small_core(5))]);
        damage(&capture);
        let losses = read_capture(&capture, &Reading::default()).unwrap().losses;
        let name = |loss: &capture::tpu::loss::Loss| loss.path.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(losses.count, losses.described.len());
        losses.described.iter().map(|loss| format!("{}: {}", name(loss), loss.what)).collect::<Vec<_>>().join("\n")
    };
    let truncate = |capture: &Path, length: usize| {
        let path = capture.join("cdmlib0_1.profile");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(path, &bytes[..length]).unwrap();
    };
    let add = |capture: &Path, line: &str| {
        let path = capture.join("global.profile");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("{text}{line}\n")).unwrap();
    };
    assert_eq!(reported(&|_| {}), "");
    let none = "cdmlib0_1.profile: contains none of the 4";
    let both =
        format!("{none} TIU records that global.profile declares\n{none} GDMA records that global.profile declares");
    assert_eq!(reported(&|capture| truncate(capture, 0)), both);
    // Truncated at the end of the block of TIU records.
    assert_eq!(
        reported(&|capture| truncate(capture, 8 + 4 * 16)),
        format!("{none} GDMA records that global.profile declares")
    );
    // Truncated between two GDMA records, which both the block and the counts reveal.
    let cut = reported(&|capture| truncate(capture, 8 + 4 * 16 + 8 + 3 * 64));
    assert!(cut.contains("only 3 of the 4 GDMA records") && cut.contains("but only 192 bytes are left"), "{cut}");
    // Missing files.
    assert_eq!(
        reported(&|capture| add(capture, "core7_tiu_record=9\ncdma_port3_record=5")),
        "cdmlib0_7.profile: contains none of the 9 TIU records that global.profile declares\ncdma_3.profile: contains \
         none of the 5 CDMA records that global.profile declares"
    );
    // A full buffer contains fewer records than were counted.
    assert_eq!(reported(&|capture| add(capture, "core1_tiu_record=4096")), "");
    assert_eq!(reported(&|capture| add(capture, "core1_sdma_record=0\nunheard_of_record=7")), "");
}

#[test]
fn a_core_whose_commands_are_cut_off_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let mut cut = small_core(5);
    cut.0.truncate(8 + 4 * 16 + 8 + 4 * 64);
    let timeline =
        read_capture(&card::write(folder.path(), &[(0, small_core(0)), (1, cut)]), &Reading::default()).unwrap();
    assert_eq!(timeline.losses.count, 0, "commands are not declared");
    let notes = timeline.losses.notes.join("\n");
    assert!(notes.contains("cdmlib0_1.profile: the records have no commands"), "{notes}");
}

#[test]
fn nothing_readable_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(read_capture(folder.path(), &Reading::default()), Err(tpu::Error::Read { .. })));
    let capture = card::write(folder.path(), &[]);
    assert!(matches!(read_capture(&capture, &Reading::default()), Err(tpu::Error::Nothing { .. })));
    std::fs::write(capture.join("global.profile"), "arch=bm1684\n").unwrap();
    assert!(matches!(read_capture(&capture, &Reading::default()), Err(tpu::Error::UnknownArch { .. })));
    std::fs::write(capture.join("global.profile"), "no such thing\n").unwrap();
    assert!(matches!(read_capture(&capture, &Reading::default()), Err(tpu::Error::NoArch { .. })));
}

#[test]
fn paths_with_special_characters_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("性能 [x*]+(1).xlsx");
    let timeline = read_capture(&card::write(&odd, &[(0, small_core(0))]), &Reading::default()).unwrap();
    let out = odd.join("out [1]");
    write_all(&timeline, &out);
    assert!(out.join("PerfDoc/PerfAI_output.xlsx").is_file());
}

fn write_all(timeline: &Timeline, out: &Path) {
    reginfo::write_reports(timeline, out).unwrap();
    trace::write_trace(timeline, None, &out.join("perfetto.pftrace")).unwrap();
    book::write_book(timeline, out, None).unwrap();
    page::write_page(timeline, summary::sum_timeline(timeline).as_ref(), out).unwrap();
}

#[test]
fn outputs_are_deterministic() {
    let folder = tempfile::tempdir().unwrap();
    let timeline = view(&[(0, small_core(0)), (1, small_core(999))], &Reading::default());
    let names = ["perfetto.pftrace", "PerfDoc/PerfAI_output.xlsx", "PerfDoc/PerfAI_output.csv", "PerfWeb/result.html"];
    let outs = ["one", "two"].map(|name| folder.path().join(name));
    outs.iter().for_each(|out| write_all(&timeline, out));
    for name in names {
        assert!(std::fs::read(outs[0].join(name)).unwrap() == std::fs::read(outs[1].join(name)).unwrap(), "{name}");
    }
    let page = std::fs::read_to_string(outs[0].join(names[3])).unwrap();
    assert!(!page.contains("http://") && !page.contains("https://"), "the page works without a network");
}

#[test]
fn traces_can_be_queried() {
    let folder = tempfile::tempdir().unwrap();
    let timeline = view(&[(0, small_core(0))], &Reading::default());
    let path = folder.path().join("perfetto.pftrace");
    trace::write_trace(&timeline, None, &path).unwrap();
    let ask = |sql: &str| capture::trace::query_trace(&path, sql, &QueryBounds::default()).unwrap().rows;
    let text = |text: &str| Value::Text(text.to_owned());
    let rows = ask("select name, dur from slice s where s.name = 'MM2_NN' order by dur desc");
    assert_eq!(rows, [[text("MM2_NN"), Value::Integer(499)]]);
    let rows = ask(
        "SELECT s.name, s.dur FROM slice s JOIN track t ON s.track_id = t.id
         JOIN track parent ON t.parent_id = parent.id WHERE parent.name = 'Core 0' AND t.name = 'Kernel Function' ORDER BY s.dur DESC",
    );
    assert_eq!(rows, [[text("mm"), Value::Integer(1209)]]);
    let rows =
        ask("SELECT a.real_value AS ddr_bandwidth, s.name FROM slice s JOIN args a ON s.arg_set_id = a.arg_set_id
         WHERE a.key = 'debug.DDR Bandwidth(GB/s)' AND ddr_bandwidth BETWEEN 5 AND 50 ORDER BY ddr_bandwidth DESC");
    assert_eq!(rows, [[Value::Real(41.1658), text("tensorSt")]]);
    let rows = ask("SELECT a.display_value AS rate FROM slice s JOIN args a ON s.arg_set_id = a.arg_set_id
         WHERE a.key = 'debug.uArch Rate' AND CAST(a.display_value AS DOUBLE) < 40");
    assert_eq!(rows.len(), 2);
}

fn small_trace(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("perfetto.pftrace");
    trace::write_trace(&view(&[(0, small_core(0))], &Reading::default()), None, &path).unwrap();
    path
}

#[test]
fn queries_only_read_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = small_trace(folder.path());
    let ask = |sql: &str| capture::trace::query_trace(&path, sql, &QueryBounds::default());
    let other = folder.path().join("other.db");
    let refused = [
        &format!("attach '{}' as other", other.display()),
        "create table x (y)",
        "create temp table x (y)",
        "create temp view x as select 1",
        "insert into slice (id) values (1)",
        "delete from slice",
        "drop table slice",
        "pragma query_only = off",
        "pragma table_info(slice)",
        "select * from pragma_database_list",
        "select * from dbstat",
        "select load_extension('/tmp/x.so')",
        "select fts3_tokenizer('simple')",
        "select sqlite_log(1, 'x')",
        "create virtual table x using fts5(y)",
        "begin",
        "savepoint x",
        "vacuum into '/tmp/x.db'",
        "reindex",
        "analyze",
    ];
    for sql in refused {
        match ask(sql) {
            Err(Error::Refused { .. }) => {}
            other => panic!("{sql}: {other:?}"),
        }
    }
    assert!(!other.exists(), "nothing is written");
    let allowed = [
        "select count(*), sum(dur), group_concat(name) from slices",
        "with t as (select name, row_number() over (order by ts) as n from slice) select count(*) from t",
        "with recursive t(x) as (select 1 union all select x + 1 from t where x < 100) select sum(x), max(x) from t",
        "select json_extract('{\"a\":1}', '$.a'), value from json_each('[1,2]')",
        "select name, sql from sqlite_master",
        "select format('%.2f', avg(dur)) || printf('%d', 3) from slice where name like '%MM%' or name glob 'M*'",
        "explain query plan select * from args where arg_set_id = 1",
        "select 1; -- that is all",
        "values (1), (2)",
    ];
    for sql in allowed {
        assert!(ask(sql).is_ok(), "{sql}: {:?}", ask(sql));
    }
    assert!(matches!(ask("select nothing"), Err(Error::Query(_))));
    for sql in ["select 1; select 2", "select 1; attach 'x' as y"] {
        assert!(matches!(ask(sql), Err(Error::Statements | Error::Refused { .. })), "{sql}: {:?}", ask(sql));
    }
    for sql in ["", "  -- nothing"] {
        assert!(matches!(ask(sql), Err(Error::NoStatement)), "{sql}: {:?}", ask(sql));
    }
}

#[test]
fn json_has_infinities_and_blobs_as_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = small_trace(folder.path());
    let sql = "select x'00ff' as bytes, 1e308 * 10 as high, -1e308 * 10 as low, 1.5 as real";
    let answer = capture::trace::query_trace(&path, sql, &QueryBounds::default()).unwrap();
    let json = serde_json::to_string(&answer.json_objects().unwrap()).unwrap();
    assert_eq!(json, r#"[{"bytes":"00ff","high":"inf","low":"-inf","real":1.5}]"#);
    let cells: Vec<String> = answer.rows[0].iter().map(ToString::to_string).collect();
    assert_eq!(cells, ["00ff", "inf", "-inf", "1.5"]);
}

#[test]
fn queries_have_limits() {
    let folder = tempfile::tempdir().unwrap();
    let path = small_trace(folder.path());
    let short = QueryBounds { time: std::time::Duration::from_millis(50), ..QueryBounds::default() };
    let endless = "with recursive t(x) as (select 1 union all select x + 1 from t) select count(*) from t";
    assert!(matches!(capture::trace::query_trace(&path, endless, &short), Err(Error::Late { .. })));
    let few = QueryBounds { rows: 1000, ..QueryBounds::default() };
    let long = "with recursive t(x) as (select 1 union all select x + 1 from t) select x from t";
    assert!(matches!(capture::trace::query_trace(&path, long, &few), Err(Error::Long { .. })));
    let little = QueryBounds { bytes: 1 << 20, ..QueryBounds::default() };
    let wide = "with recursive t(x) as (select 1 union all select x + 1 from t) select hex(zeroblob(1000)) from t";
    assert!(matches!(capture::trace::query_trace(&path, wide, &little), Err(Error::Long { .. })));
    let large = "select zeroblob(1000000000)";
    assert!(matches!(capture::trace::query_trace(&path, large, &QueryBounds::default()), Err(Error::Query(_))));
}

#[test]
fn host_calls_are_merged_with_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut timeline = view(&[(0, small_core(0))], &Reading::default());
    timeline.tail_offset_ns = Some(1000);
    // A list, calls in two events, one without an end, times as text, and a truncated file.
    let host = r#"[{"ph":"B","cat":"cpu_op","name":"outer","ts":"10","pid":1,"tid":1},
        {"ph":"X","cat":"cpu_op","name":"inner","ts":12,"dur":3,"pid":1,"tid":1},
        {"ph":"E","ts":20,"pid":1,"tid":1}, {"ph":"B","cat":"cpu_op","name":"open","ts":25,"pid":1,"tid":2},
        {"ph":"X","cat":"tpudnn","name":"disable_profile","ts":30,"dur":10,"pid":1,"tid":1}, {"ph":"X","na"#;
    let file = folder.path().join("host.json");
    std::fs::write(&file, host).unwrap();
    let mut losses = timeline.losses.clone();
    let tail = (timeline.tail_ns, timeline.tail_offset_ns);
    let host = trace::host::read_host_trace(&file, tail, &mut losses).unwrap();
    assert_eq!(losses.count, 1, "the broken end event is reported");
    // disable_profile ends at 40 µs; the records end 1 µs earlier.
    assert_eq!(host.zero_ns, Some(40_000 - 1000 - timeline.tail_ns));
    let path = folder.path().join("perfetto.pftrace");
    trace::write_trace(&timeline, Some(&host), &path).unwrap();
    let rows = capture::trace::query_trace(
        &path,
        "select s.name, ts, dur, depth from slice s join track t on s.track_id = t.id where t.name = 'cpu op' \
         order by ts",
        &QueryBounds::default(),
    );
    let text = |row: &Vec<Value>| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = rows.unwrap().rows.iter().map(text).collect();
    assert_eq!(rows, ["outer 10000 10000 0", "inner 12000 3000 1", "open 25000 15000 0"]);
}

fn provenance() -> CaptureProvenance {
    CaptureProvenance {
        taken_at_us: 1,
        host: "card".to_owned(),
        run_id: "run".to_owned(),
        program_version: "0".to_owned(),
        capture_hash: "hash".to_owned(),
    }
}

#[test]
fn a_capture_becomes_rows_of_the_dataset() {
    let timeline = view(&[(0, small_core(0)), (1, small_core(3))], &Reading::default());
    let rows = import::to_records(&timeline, &provenance(), Per::Operator).unwrap();
    assert_eq!(rows.len(), 8, "four operators on each of two cores");
    assert!(rows.iter().all(|row| row.source == datasets::Source::Imported && row.n == 1));
    let keys: std::collections::HashSet<_> = rows.iter().map(|row| row.key).collect();
    assert_eq!(keys.len(), rows.len());
    let load = rows.iter().find(|row| row.op_name == "tensorLd").unwrap();
    assert_eq!((load.median_ns, load.bytes_in), (Some(999.0), Some(65536)));
    assert_eq!(import::to_records(&timeline, &provenance(), Per::Command).unwrap().len(), 8);
}

#[test]
fn slower_operators_come_first() {
    let before = view(&[(0, small_core(0))], &Reading::default());
    let (mut tiu, gdma, mut nodes) = card::preamble();
    tiu.extend([[2000, 2999, 0, 0], [3100, 3499, 1, 8]]);
    nodes.extend(card::kernel("mm"));
    nodes.extend([card::reset(0), card::node(0, 2, 4, 1), card::node(0, 3, 14, 1)]);
    let slower = File::default().tiu(&tiu).gdma(&gdma).nodes(&nodes);
    let after = view(&[(0, slower)], &Reading::default());
    let comparison = compare::compare_captures(&before, &after);
    let lost: Vec<_> = comparison.changes.iter().map(|change| (change.operator.name, change.lost_ns())).collect();
    assert_eq!(lost, [("MM2_NN", 500.0), ("data_convert", -100.0)]);
    assert_eq!(comparison.gone.len(), 2, "the transfers are gone");
    let places: Vec<_> =
        comparison.lost_by_place().into_iter().map(|place| (place.name, place.lost.total_ns)).collect();
    assert_eq!(places, [("mm", 400.0)]);
}
