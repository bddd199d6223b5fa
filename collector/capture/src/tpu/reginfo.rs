//! Register reports: all columns of all events as text, one file per core and kind of engine.

use super::chip::Engine;
use super::event::{Event, Value};
use super::timeline::Timeline;
use super::{Result, output};
use datasets::output::Output;
use rayon::prelude::*;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const PIECE: usize = 1 << 16;

pub fn write_reports(timeline: &Timeline, directory: &Path) -> Result<usize> {
    let mut jobs: Vec<(PathBuf, ReportJob<'_>)> = Vec::new();
    for core in &timeline.cores {
        let file = |kind: &str| directory.join(format!("{kind}RegInfo_{}.txt", core.id));
        for (kind, engines) in [("tiu", &[Engine::Tiu][..]), ("tdma", &[Engine::Gdma, Engine::Sdma])] {
            if timeline.engines_of(core).any(|engine| engines.contains(&engine)) {
                jobs.push((file(kind), ReportJob::Core(core, engines)));
            }
        }
    }
    for port in timeline.ports.iter().filter(|port| !port.stream.records.is_empty()) {
        jobs.push((directory.join(format!("cdmaRegInfo_{}.txt", port.number)), ReportJob::Port(port)));
    }
    let write =
        |(path, job): &(PathBuf, ReportJob<'_>)| output::write_file(path, |file| write_file(timeline, file, job));
    jobs.par_iter().try_for_each(write)?;
    Ok(jobs.len())
}

enum ReportJob<'a> {
    Core(&'a super::core::Core, &'static [Engine]),
    Port(&'a super::cdma::Port),
}

fn write_file(timeline: &Timeline, file: &mut BufWriter<Output>, job: &ReportJob<'_>) -> std::io::Result<()> {
    let mut out = RegisterReport { file, text: Vec::with_capacity(PIECE) };
    out.text.extend_from_slice(b"__CHIP_ARCH_ARGS__\n");
    for (key, value) in timeline.settings.chip.report_parameters(timeline.settings.tiu_mhz) {
        out.text.extend_from_slice(format!("\t{key}: {value}\n").as_bytes());
    }
    match job {
        ReportJob::Core(core, engines) => {
            for engine in *engines {
                timeline.core_events(core, *engine).try_for_each(|event| out.write_event(&event))?;
            }
        }
        ReportJob::Port(port) => timeline.port_events(port).try_for_each(|event| out.write_event(&event))?,
    }
    out.file.write_all(&out.text)
}

struct RegisterReport<'a> {
    file: &'a mut BufWriter<Output>,
    text: Vec<u8>,
}

impl RegisterReport<'_> {
    fn write_event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        let text = &mut self.text;
        text.extend_from_slice(match event.engine {
            Engine::Tiu => b"__TIU_REG_INFO__\n",
            Engine::Gdma | Engine::Sdma => b"__TDMA_REG_INFO__\n",
            Engine::Cdma => b"__CDMA_REG_INFO__\n",
        });
        event.list_info(&mut |key, value| append_line(text, "", key, value));
        event.list_context(&mut |key, value| append_line(text, "", key, value));
        if event.engine == Engine::Tiu {
            text.extend_from_slice(event.operation_names().kind.as_bytes());
            text.extend_from_slice(b":\n");
            event.list_registers(&mut |prefix, key, value| append_line(text, prefix, key, value));
        }
        if text.len() >= PIECE / 2 {
            self.file.write_all(text)?;
            text.clear();
        }
        Ok(())
    }
}

fn append_line(text: &mut Vec<u8>, prefix: &str, key: &str, value: Value<'_>) {
    text.push(b'\t');
    text.extend_from_slice(prefix.as_bytes());
    text.extend_from_slice(key.as_bytes());
    text.extend_from_slice(b": ");
    value.append_to(text);
    text.push(b'\n');
}
