//! A real browser that opens pages, runs their programs and tells what came of it.

use crate::{run, skip};
use std::path::Path;
use std::process::Command;

/// A page after its programs ran.
pub struct Page {
    /// What it consists of then.
    pub text: String,
    /// What its programs complained about.
    pub complaints: Vec<String>,
}

/// Opens a file in headless Chromium; `None`, said aloud, where there is no Chromium.
pub fn open(path: &Path) -> Option<Page> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(name).is_file())
    });
    let Some(program) = found else {
        skip("there is no Chromium to open pages with");
        return None;
    };
    let profile = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(program);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", path.display()));
    let ran = run(command).expect(0);
    let complaints = ran.stderr.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some(Page { text: ran.stdout, complaints })
}
