//! Pages that the programs write, opened in a real browser.
#![allow(missing_docs)]

#[allow(dead_code, reason = "the tests of the reader use all of it")]
#[path = "../../collector/tests/tpu/capture.rs"]
mod capture;

use tests::{Bench, browser, run};

#[test]
fn a_tpu_capture_shows_itself() {
    let bench = Bench::new();
    let input = capture::write(&bench.path(""), &[(0, capture::small_core(0)), (1, capture::small_core(5))]);
    let name = input.file_name().expect("the folder of the capture has a name").to_string_lossy();
    run(bench.opcollect(&format!("tpu view {name} out"))).expect(0);
    let Some(page) = browser::open(&bench.path("out/PerfWeb/result.html")) else { return };
    assert_eq!(page.complaints, Vec::<String>::new());
    // The program filled them from the data.
    for part in
        ["<b>2</b><span>cores with records</span>", "<th>totalTiuCycle</th>", "from the first record to the last"]
    {
        assert!(page.text.contains(part), "{part} in {}", page.text);
    }
}

#[test]
fn a_graph_is_drawn() {
    let bench = Bench::new();
    run(bench.opcollect("graph --modelsource local --modelname mlp --html graph.html")).expect(0);
    let Some(page) = browser::open(&bench.path("graph.html")) else { return };
    assert_eq!(page.complaints, Vec::<String>::new());
    assert!(page.text.contains("dense"), "{}", page.text);
    // The drawing has its place and scale only once the program ran.
    assert!(page.text.contains("<g id=\"all\" transform="), "{}", page.text);
}
