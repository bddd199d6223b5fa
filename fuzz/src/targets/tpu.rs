//! Reads arbitrary bytes as the files of two cores and a port in a TPU capture, and formats every record; invalid
//! content is rejected or skipped.
//!
//! Useful seeds are the files of any capture after five bytes: one for chip and style, then two lengths of two bytes.

use capture::tpu::chip::{Chip, Engine};
use capture::tpu::settings::Settings;
use capture::tpu::{assemble_timeline, cdma, core, loss::Losses, summary};
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let [choice, a, b, c, d, rest @ ..] = bytes else { return };
    let chip = [Chip::Aks, Chip::Aksv, Chip::Bm1688, Chip::Cv84x6][usize::from(choice & 3)];
    let settings =
        Settings { chip, is_bmodel: choice & 4 != 0, tiu_mhz: chip.facts().tiu_mhz, compat: choice & 8 != 0 };
    let (first, rest) = rest.split_at(usize::from(u16::from_le_bytes([*a, *b])).min(rest.len()));
    let (port, last) = rest.split_at(usize::from(u16::from_le_bytes([*c, *d])).min(rest.len()));
    let path = Path::new("fuzz");
    let cores = [(0, first), (chip.facts().cores - 1, last)];
    let cores = cores.map(|(id, bytes)| core::parse_core(&settings, core::Core::new(id, path), bytes.to_vec()));
    let ports = match chip.facts().ports {
        0 => Vec::new(),
        _ => vec![cdma::parse_port(&settings, cdma::Port::default(), port.to_vec())],
    };
    let timeline = assemble_timeline(path, settings, 0, cores.into(), ports, Losses::default());
    if let Some(summary) = summary::sum_timeline(&timeline) {
        let _ = summary.vendor_text();
    }
    let mut text = Vec::new();
    for core in &timeline.cores {
        for engine in [Engine::Tiu, Engine::Gdma, Engine::Sdma] {
            for event in timeline.core_events(core, engine) {
                event.list_info(&mut |_, value| value.append_to(&mut text));
                event.list_context(&mut |_, value| value.append_to(&mut text));
                event.list_registers(&mut |_, _, value| value.append_to(&mut text));
                text.clear();
            }
        }
    }
}
