//! Pages that the programs write or serve, opened in a real browser.
#![allow(missing_docs)]

#[allow(dead_code, reason = "the tests of the reader use all of it")]
#[path = "../../collector/capture/tests/tpu/card.rs"]
mod card;
#[path = "../../predictor/tests/common/mod.rs"]
mod common;

use predictor::bundle;
use predictor::serve::{Service, serve_requests};
use std::net::TcpListener;
use std::time::Duration;
use tests::{Bench, browser, run};

#[test]
fn the_page_of_a_tpu_capture_works() {
    let bench = Bench::new();
    let input = card::write(&bench.path(""), &[(0, card::small_core(0)), (1, card::small_core(5))]);
    let name = input.file_name().expect("the folder of the capture has a name").to_string_lossy();
    run(bench.opcollect(&format!("tpu view {name} out"))).expect(0);
    let Some(page) = browser::open(&bench.path("out/PerfWeb/result.html")) else { return };
    assert_eq!(page.complaints, Vec::<String>::new());
    // The script filled the elements from the data; long words may be split.
    let text = page.text.replace("<wbr>", "");
    for part in [
        "records of 2 cores</span>",
        "<th title=\"totalTiuCycle: time in which the tensor unit was busy\">TIU time</th>",
        "from the first record to the last",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_tpu_capture_fits_into_the_window() {
    let bench = Bench::new();
    let cores: Vec<_> = (0..8).map(|core| (core, card::small_core(core))).collect();
    let input = card::write(&bench.path(""), &cores);
    let name = input.file_name().expect("the folder of the capture has a name").to_string_lossy();
    run(bench.opcollect(&format!("tpu view {name} out"))).expect(0);
    for tab in ["overview", "timelines", "compare"] {
        let Some(found) = browser::overflow(&bench.path("out/PerfWeb/result.html"), &format!("#/{tab}")) else {
            return;
        };
        assert_eq!(found, Vec::<String>::new(), "{tab}");
    }
}

#[test]
fn a_graph_is_drawn() {
    let bench = Bench::new();
    run(bench.opcollect("graph --modelsource local --modelname mlp --html graph.html")).expect(0);
    let Some(page) = browser::open(&bench.path("graph.html")) else { return };
    assert_eq!(page.complaints, Vec::<String>::new());
    assert!(page.text.contains("dense"), "{}", page.text);
    // The script sets position and scale of the drawing.
    assert!(page.text.contains("<g id=\"all\" transform="), "{}", page.text);
}

#[test]
fn a_profile_is_drawn() {
    let bench = Bench::new();
    let command = "profile --modelsource local --modelname mlp --seconds 0.2 --config quick.toml --html profile.html";
    run(bench.opcollect(command)).expect(0);
    let Some(page) = browser::open(&bench.path("profile.html")) else { return };
    assert_eq!(page.complaints, Vec::<String>::new());
    let text = page.text.replace("<wbr>", "");
    // The first row has its colour in the table, its bar and the flame graph.
    let colour = text.split_once("class=\"swatch\" style=\"background: ").and_then(|(_, rest)| rest.split_once(';'));
    let (colour, _) = colour.unwrap_or_else(|| panic!("no swatch: {text}"));
    assert!(text.contains(&format!("width: 100%; background: {colour};")), "{colour}: {text}");
    // Provenance: the program, the host and the command.
    assert!(text.contains("Written by opcollect ") && text.contains("--modelname mlp"), "{text}");
    let found = browser::overflow(&bench.path("profile.html"), "").expect("a browser");
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_graph_shows_measured_times() {
    let bench = Bench::new();
    run(bench.opcollect("--modelsource local --modelname mlp --schedules 1 --config quick.toml --store store"))
        .expect(0);
    run(bench.opcollect("graph --modelsource local --modelname mlp --html graph.html --store store")).expect(0);
    let page = std::fs::read_to_string(bench.path("graph.html")).expect("it was written");
    assert!(page.contains(" measured), "), "the totals say so: {page}");
    assert!(page.contains("[\"measured\",\"") && page.contains(" on "), "each task has its median: {page}");
    let other = run(bench.opcollect("graph --modelsource local --modelname mlp --html other.html --store nowhere"));
    assert_eq!(other.code(), 2, "{other}");
}

#[test]
fn the_page_of_the_server_works() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let predictor = bundle::from_bytes(common::trained()).expect("a predictor");
    let service =
        Service { predictor, mapping: Some(common::samples().1), patience: Duration::from_secs(60), known: None };
    std::thread::spawn(move || serve_requests(listener, service));
    let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let first_address = first.local_addr().expect("an address");
    let predictor = bundle::from_bytes(common::trained()).expect("a predictor");
    let service = Service { predictor, mapping: None, patience: Duration::from_secs(60), known: None };
    std::thread::spawn(move || serve_requests(first, service));
    let ask = |query: &str| browser::visit(&format!("http://{address}/?{query}")).map(|page| page.text);
    let Some(answered) = ask("operators=product:b%3D3,m%3D200,n%3D300,k%3D100%0Asoft:m%3D100,n%3D200&device=middle")
    else {
        return;
    };
    for part in ["<td class=\"\">product:b=3,m=200,n=300,k=100</td>", "<td class=\"\">total</td>", "µs</td>"] {
        assert!(answered.contains(part), "{part}\n{answered}");
    }
    // Without a query, the page starts with an example.
    let begun = browser::visit(&format!("http://{first_address}/")).expect("a browser").text;
    assert!(begun.contains("max_pool") && begun.contains("<td class=\"\">total</td>"), "{begun}");
    // Some operators of the network have only a lower bound, so their interval has no upper end.
    let bounds = ask("model=mlp&device=middle").expect("a browser");
    for part in ["<td class=\"\">total</td>", ">≥ ", "the training data lacks"] {
        assert!(bounds.contains(part), "{part}\n{bounds}");
    }
    let refused = ask("operators=product:b%3D3&device=middle").expect("a browser");
    assert!(
        refused.contains("class=\"error\">cannot read the operator `product:b=3`: `m` is missing</p>"),
        "{refused}"
    );
}
