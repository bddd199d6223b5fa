//! Opens pages in a real browser and returns the results of their scripts.

use crate::{run, skip};
use std::path::Path;
use std::process::Command;

pub struct Page {
    pub text: String,
    pub complaints: Vec<String>,
}

/// Tested window widths: a laptop's and a phone's.
pub const WIDTHS: [u32; 2] = [1280, 400];

/// Opens a file in headless Chromium; without Chromium, reports that and returns None.
pub fn open(path: &Path) -> Option<Page> {
    visit(&format!("file://{}", path.display()))
}

pub fn visit(address: &str) -> Option<Page> {
    open_at(address, WIDTHS[0])
}

/// Returns elements that exceed the window at each width, at a location in the page (`#…`), and tables that exceed
/// their container in wide windows. Returns None without Chromium.
pub fn overflow(path: &Path, place: &str) -> Option<Vec<String>> {
    // Elements that scroll may be wider than a narrow window, and so may their content.
    const OVERFLOW_SCRIPT: &str = "<script>addEventListener('load', () => setTimeout(() => {
        const scrolls = (part) => part && (getComputedStyle(part).overflowX !== 'visible' || scrolls(part.parentElement));
        const found = [...document.body.querySelectorAll('*')].filter((part) => part.offsetParent && !scrolls(part.parentElement)
            && (part.getBoundingClientRect().right > innerWidth + 1
                || (innerWidth > 1000 && part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).display !== 'inline')));
        const name = (part) => `${part.tagName} #${part.id} .${part.className}: ${part.scrollWidth} in ${part.clientWidth}`;
        document.documentElement.dataset.overflow = `[[${found.map(name).join('; ')}]]`;
    }, 500));</script>";
    let text = std::fs::read_to_string(path).expect("a page is text");
    let copy = path.with_file_name("overflow.html");
    std::fs::write(&copy, text + OVERFLOW_SCRIPT).expect("the folder is writable");
    let mut found = Vec::new();
    for width in WIDTHS {
        let page = open_at(&format!("file://{}{place}", copy.display()), width)?.text;
        let listed = page.split_once("data-overflow=\"[[").and_then(|(_, rest)| rest.split_once("]]"));
        let (listed, _) = listed.unwrap_or_else(|| panic!("the page has no overflow list: {page}"));
        found.extend((!listed.is_empty()).then(|| format!("at {width}: {listed}")));
    }
    Some(found)
}

fn open_at(address: &str, width: u32) -> Option<Page> {
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
        .arg(format!("--window-size={width},1000"))
        .arg(address);
    let ran = run(command).expect(0);
    let complaints = ran.stderr.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some(Page { text: ran.stdout, complaints })
}
