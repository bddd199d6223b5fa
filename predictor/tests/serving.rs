//! Tests the HTTP server through plain sockets; the package `tests` opens its page in a browser.

mod common;

use datasets::{Origin, Outcome, Record, Source, Store};
use learn::host_translation::{Factors, HostTranslation};
use learn::predictor::Predictor;
use measure::host::Facts;
use predictor::bundle;
use predictor::serve::{Service, StoredRecords, serve_requests};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

fn server(patience: Duration) -> SocketAddr {
    let predictor = bundle::from_bytes(common::trained()).expect("a predictor");
    server_of(predictor, patience)
}

fn server_of(predictor: Predictor, patience: Duration) -> SocketAddr {
    server_with(predictor, patience, known())
}

fn server_with(predictor: Predictor, patience: Duration, known: StoredRecords) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let service = Service { predictor, mapping: Some(common::samples().1), patience, known: Some(known) };
    std::thread::spawn(move || serve_requests(listener, service));
    address
}

fn known() -> StoredRecords {
    known_of(&[
        ("one", "a", 10.0, 2),
        ("one", "a", 12.0, 2),
        ("two", "a", 7.0, 2),
        ("two", "b", 5.0, 2),
        ("one", "a", 3.0, 1),
    ])
}

/// Times of hosts, with task and version. The host `here` is this machine.
fn known_of(times: &[(&str, &str, f64, i64)]) -> StoredRecords {
    let facts = Facts::read_facts();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::create(folder.path()).expect("a new store");
    let origin = Origin { host: "h".to_owned(), program: "p".to_owned(), command: "c".to_owned() };
    let mut journal = store.start_journal(origin).expect("a new store takes journals");
    for &(host, task, median_ns, version) in times {
        let (host, host_class) = match host {
            "here" => (facts.hostname.clone().unwrap_or_default(), facts.host_class()),
            host => (host.to_owned(), format!("class {host}")),
        };
        let mut record = Record {
            schema_version: datasets::SCHEMA_VERSION,
            host,
            host_class,
            op_kind: "relu".to_owned(),
            task_hash: task.to_owned(),
            schedule_hash: Some(median_ns.to_string()),
            source: Source::Measured,
            outcome: Outcome::Ok,
            started_at_us: version,
            tvm_version: Some(version.to_string()),
            run_id: "run".to_owned(),
            op_name: "relu".to_owned(),
            op_text: "relu f32[8]".to_owned(),
            program_version: "0".to_owned(),
            n: 1,
            median_ns: Some(median_ns),
            min_ns: Some(median_ns),
            mean_ns: Some(median_ns),
            p95_ns: Some(median_ns),
            attempt: 1,
            samples_ns: vec![median_ns],
            ..Record::default()
        };
        record.key = record.experiment_key();
        journal.append(&record).expect("the row is sound");
    }
    journal.seal().expect("the journal is sound");
    StoredRecords::read_store(folder.path()).expect("a store")
}

#[test]
fn what_a_store_knows_is_told() {
    let address = server(Duration::from_secs(60));
    let (status, tasks) = get(address, "/tasks");
    let tasks: Value = serde_json::from_str(&tasks).expect("JSON");
    assert_eq!((status, &tasks["tasks"][0]["hosts"]), (200, &json!(["one", "two"])), "{tasks}");
    let ask = |body: &str| {
        let head = format!(
            "POST /best HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let (status, reply) = send(address, (head + body).as_bytes());
        (status, serde_json::from_str::<Value>(&reply).expect("replies are JSON"))
    };
    let (status, best) = ask(r#"{"host": "one"}"#);
    let told: Vec<Value> =
        best["tasks"].as_array().expect("tasks").iter().map(|best| json!([best["host"], best["median_ns"]])).collect();
    assert_eq!((status, told), (200, vec![json!(["one", 10.0]), json!(["two", 5.0])]), "{best}");
    assert_eq!(best["left_out"], 1, "{best}");
    let (status, all) = ask(r#"{"host": "one", "task": "a", "all_versions": true}"#);
    let told = (&all["tasks"][0]["median_ns"], &all["tasks"][0]["tvm_version"], &all["left_out"]);
    assert_eq!((status, told), (200, (&json!(3.0), &json!("1"), &json!(0))), "{all}");
    for (wrong, status) in [(r#"{"host": "none"}"#, 422), (r#"{"hots": "one"}"#, 400), ("x", 400)] {
        assert_eq!(ask(wrong).0, status, "{wrong}");
    }
}

#[test]
fn without_a_host_times_of_this_machine_count() {
    let known = known_of(&[("a", "task", 5.0, 2), ("here", "task", 7.0, 2), ("z", "task", 3.0, 2)]);
    let address =
        server_with(bundle::from_bytes(common::trained()).expect("a predictor"), Duration::from_secs(60), known);
    let request =
        format!("POST /best HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}");
    let (status, reply) = send(address, request.as_bytes());
    let best: Value = serde_json::from_str(&reply).expect("JSON");
    let told = (&best["tasks"][0]["median_ns"], &best["tasks"][0]["distance"]);
    assert_eq!((status, told), (200, (&json!(7.0), &json!(0.0))), "{best}");
}

fn send(address: SocketAddr, bytes: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.write_all(bytes).expect("it takes what it is sent");
    let (mut reply, mut piece) = (Vec::new(), [0; 4096]);
    // A server that refuses before it has read everything ends the connection hard, after its reply.
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        reply.extend_from_slice(&piece[..count]);
    }
    let reply = String::from_utf8_lossy(&reply);
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    send(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
}

fn post(address: SocketAddr, body: &str) -> (u16, Value) {
    let head = format!(
        "POST /predict HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let (status, reply) = send(address, (head + body).as_bytes());
    (status, serde_json::from_str(&reply).expect("replies are JSON"))
}

fn check(document: &Value, schema: &str, openapi: &Value) {
    let schema = &openapi["components"]["schemas"][schema];
    let names = |value: &Value| -> BTreeSet<String> { value.as_object().expect("an object").keys().cloned().collect() };
    let required: BTreeSet<String> = serde_json::from_value(schema["required"].clone()).expect("a list of names");
    assert_eq!(names(document), required, "{document}\n{schema}");
    assert!(required.is_subset(&names(&schema["properties"])), "{schema}");
}

/// A calibration is identified by the host class only.
#[test]
fn answers_for_a_calibrated_host_name_it() {
    let mut predictor = bundle::from_bytes(common::trained()).expect("a predictor");
    let here = HostTranslation {
        host_class: "here".to_owned(),
        cpus: 64,
        factors: Factors { common: 2.0, ..Factors::default() },
        ..HostTranslation::default()
    };
    predictor.this_host = Some(here);
    // Of one device, as the predictors that are calibrated for hosts.
    for of in predictor.learned.operators.values_mut() {
        of.statistics.overheads_ns.retain(|device, _| device == "middle");
    }
    let address = server_of(predictor, Duration::from_secs(60));
    let about: Value = serde_json::from_str(&get(address, "/about").1).expect("JSON");
    assert_eq!(about["this_host"], "here");
    let (status, reply) = post(address, r#"{"operators": ["product:b=1,m=64,n=64,k=64"]}"#);
    assert_eq!((status, &reply["this_host"]), (200, &Value::from("here")), "{reply}");
}

#[test]
fn answers_are_as_they_are_described() {
    let address = server(Duration::from_secs(60));
    let openapi: Value = serde_json::from_str(&get(address, "/openapi.json").1).expect("JSON");
    let about: Value = serde_json::from_str(&get(address, "/about").1).expect("JSON");
    check(&about, "About", &openapi);
    let question = json!({ "operators": ["product:b=3,m=200,n=300,k=100", "soft:m=100,n=200"], "device": "middle" });
    let (status, answers) = post(address, &question.to_string());
    assert_eq!(status, 200, "{answers}");
    check(&answers, "Answers", &openapi);
    check(&answers["total"], "Total", &openapi);
    let times = answers["operators"].as_array().expect("answers");
    times.iter().for_each(|one| check(one, "Answer", &openapi));
    let sum: f64 = times.iter().filter_map(|one| one["time_ns"].as_f64()).sum();
    let total = answers["total"]["time_ns"].as_f64().expect("a time");
    assert!((sum - total).abs() < 1e-6 * sum, "{answers}");
}

#[test]
fn many_operators_are_answered_in_order() {
    let address = server(Duration::from_secs(60));
    let operators: Vec<String> =
        (0..700).map(|step| format!("product:b=3,m={},n=300,k=100", 100 + step % 350)).collect();
    let (status, answers) = post(address, &json!({ "operators": operators, "device": "middle" }).to_string());
    assert_eq!(status, 200, "{answers}");
    let answers = answers["operators"].as_array().expect("answers");
    let texts: Vec<&Value> = answers.iter().map(|answer| &answer["operator"]).collect();
    assert_eq!(texts, operators.iter().collect::<Vec<_>>());
    for place in [0, 127, 128, 699] {
        let (_, alone) = post(address, &json!({ "operators": [operators[place]], "device": "middle" }).to_string());
        assert_eq!(alone["operators"][0], answers[place], "{place}");
    }
}

#[test]
fn bad_requests_are_refused_and_do_no_harm() {
    let address = server(Duration::from_secs(60));
    let refused = |(status, reply): (u16, Value), expected: u16, part: &str| {
        assert_eq!(status, expected, "{reply}");
        assert!(reply["error"].as_str().is_some_and(|text| text.contains(part)), "{part}: {reply}");
    };
    refused(post(address, "{"), 400, "the body is not a valid request");
    refused(post(address, r#"{"operator": []}"#), 400, "unknown field");
    let deep = format!(r#"{{"knobs": {{"tile_x": {}"#, "[".repeat(100_000));
    refused(post(address, &deep), 400, "recursion limit");
    refused(post(address, "{}"), 422, "nothing to predict");
    for other in [r#"[["relu:shape=64x1000"]]"#, "null", "7", r#""relu""#] {
        refused(post(address, other), 400, "it must be a JSON object");
    }
    // Whether a path exists changes nothing.
    for path in ["/etc/passwd", "/etc/nopasswd", "Cargo.toml", "no.json"] {
        let unknown = format!("unknown model `{path}`; `opcollect list` shows all names");
        refused(post(address, &json!({ "model": path }).to_string()), 422, &unknown);
    }
    let sizes =
        |sizes: &str| json!({ "operators": [format!("soft:m=100,n=200{sizes}")], "device": "middle" }).to_string();
    refused(post(address, &sizes(",bogus=3")), 422, "unknown size `bogus`; known: `m`, `n`");
    refused(post(address, &sizes(",m=101")), 422, "`m` is given twice");
    refused(post(address, r#"{"operators": ["product:b=1"], "device": "middle"}"#), 422, "`m` is missing");
    refused(
        post(address, r#"{"operators": ["soft:m=1e30,n=9"], "device": "middle"}"#),
        422,
        "outside of the training range",
    );
    // Names of devices are those of the predictor that answers.
    let devices = "known: `large`, `middle`, `small`";
    let elsewhere = json!({ "operators": ["soft:m=100,n=200"], "device": "h100_sxm" });
    refused(post(address, &elsewhere.to_string()), 422, devices);
    let nowhere = json!({ "operators": ["soft:m=100,n=200"], "device": "quantum" });
    refused(post(address, &nowhere.to_string()), 422, &format!("unknown device `quantum`; {devices}"));
    let parts = json!({ "operators": ["soft:m=100,n=200"], "device": "middle", "threads": 1.5 });
    refused(post(address, &parts.to_string()), 422, "invalid number of threads 1.5: use a whole number");
    let many = json!({ "operators": ["soft:m=100,n=200"], "device": "middle", "threads": 1e300 });
    refused(post(address, &many.to_string()), 422, ": use a whole number from 1 to 4096");
    let batch = json!({ "operators": ["soft:m=100,n=200"], "device": "middle", "batch": 4 });
    refused(post(address, &batch.to_string()), 422, "`batch` applies to `model`");
    let knobs = json!({ "operators": ["soft:m=100,n=200"], "device": "middle", "knobs": { "tile_q": 8 } });
    refused(post(address, &knobs.to_string()), 422, "its knobs are unknown");
    refused(post(address, &json!({ "operators": vec!["soft"; 1001] }).to_string()), 422, "more than 1000");
    // More than is taken is refused at once, and the reply arrives although the client still sends.
    refused(post(address, &" ".repeat(1_100_000)), 413, "more than 1048576 bytes");
    let of_bytes = |bytes: &[u8]| {
        let (status, body) = send(address, bytes);
        (status, serde_json::from_str(&body).expect("replies are JSON"))
    };
    refused(of_bytes(b"POST /predict HTTP/1.1\r\nConnection: close\r\n\r\n"), 400, "the body is not a valid request");
    refused(of_bytes(b"GET /predict HTTP/1.1\r\nConnection: close\r\n\r\n"), 405, "this path supports only POST");
    refused(of_bytes(b"GET /tasks?operator=relu HTTP/1.1\r\nConnection: close\r\n\r\n"), 400, "send a JSON body");
    refused(of_bytes(b"GET /../etc/passwd HTTP/1.1\r\nConnection: close\r\n\r\n"), 404, "the paths are `/`");
    // What is no HTTP at all is refused before anything of ours sees it.
    for (bytes, expected) in [
        (&b"\x00\xff\r\n\r\n"[..], 400),
        (b"POST /predict HTTP/1.1\r\nContent-Length: one\r\n\r\n{}", 400),
        (b"POST /predict HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"POST /predict HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n{}", 413),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (&[b"GET / HTTP/1.1\r\nA: ", &[b'a'; 40_000][..]].concat(), 431),
    ] {
        assert_eq!(send(address, bytes).0, expected, "{}", String::from_utf8_lossy(&bytes[..30.min(bytes.len())]));
    }
    assert_eq!(get(address, "/").0, 200, "it still answers");
}

#[test]
fn heads_are_answered_and_other_methods_learn_the_supported_ones() {
    let address = server(Duration::from_secs(60));
    let reply = |line: &str| {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("the request is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a reply");
        text.to_ascii_lowercase()
    };
    let head = reply("HEAD /about");
    assert!(head.starts_with("http/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    for (line, allow) in [("PUT /about", "get, head"), ("HEAD /predict", "post"), ("GET /best", "post")] {
        let refused = reply(line);
        assert!(
            refused.starts_with("http/1.1 405") && refused.contains(&format!("\r\nallow: {allow}\r\n")),
            "{refused}"
        );
    }
    let openapi: Value = serde_json::from_str(&get(address, "/openapi.json").1).expect("JSON");
    assert_eq!(openapi["servers"][0]["url"], "/");
}

fn drip(address: SocketAddr, text: &'static str) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    std::thread::spawn(move || {
        for byte in text.bytes().cycle() {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    });
}

#[test]
fn connections_that_are_idle_or_drip_cost_the_others_nothing() {
    // So patient that a server which waits for any of these would not answer within this test.
    let address = server(Duration::from_secs(600));
    let idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    (0..70).for_each(|_| drip(address, "GET / HTTP/1.1\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
    (0..61).for_each(|_| drip(address, "POST /predict HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n               "));
    // Bodies that began and wait for their end.
    let half: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(b"POST /predict HTTP/1.1\r\nContent-Length: 9\r\n\r\n{").expect("it takes a part");
            stream
        })
        .collect();
    let question = json!({ "operators": ["soft:m=100,n=200"], "device": "middle" }).to_string();
    for _ in 0..20 {
        assert_eq!(post(address, &question).0, 200);
    }
    drop((idle, half));
    assert_eq!(get(address, "/about").0, 200);
}

/// Pages of other sites may send requests to this machine, also under their own host name that resolves to it.
#[test]
fn pages_of_other_sites_are_not_answered() {
    let address = server(Duration::from_secs(20));
    let asked =
        |head: &str| send(address, format!("GET /about HTTP/1.1\r\n{head}Connection: close\r\n\r\n").as_bytes());
    assert_eq!(asked("Host: localhost\r\nHost: localhost\r\n").0, 400);
    for head in [
        "Host: localhost\r\n",
        "Host: LocalHost:8731\r\n",
        "Host: 127.0.0.1:8000\r\n",
        "Host: [::1]:80\r\n",
        "Host: localhost\r\nOrigin: http://127.0.0.1:9\r\n",
    ] {
        assert_eq!(asked(head).0, 200, "{head}");
    }
    for head in [
        "Host: evil.example\r\n",
        "Host: localhost.evil.example:80\r\n",
        "Host: localhost\r\nOrigin: https://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
    ] {
        let (status, reply) = asked(head);
        assert!(status == 403 && reply.contains("error"), "{head}: {status} {reply}");
    }
}

/// Clients that send large bodies slowly or disconnect take a bounded amount of memory and do not block others.
#[test]
fn large_bodies_of_clients_that_disconnect_do_not_pile_up() {
    let address = server(Duration::from_secs(30));
    let head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    let most = vec![b' '; 999_999];
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a timeout");
            // The server may refuse it before it has read everything.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&most));
            stream
        })
        .collect();
    let question = json!({ "operators": ["soft:m=100,n=200"], "device": "middle" }).to_string();
    for _ in 0..20 {
        assert_eq!(post(address, &question).0, 200);
    }
    let refused = slow.into_iter().filter(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let mut reply = [0; 64];
        let mut stream = stream;
        matches!(stream.read(&mut reply), Ok(count) if reply[..count].starts_with(b"HTTP/1.1 503"))
    });
    // Sixteen of a megabyte find room; where a system closed a connection hard, its reply is lost.
    assert!(refused.count() > 0, "all hundred were kept in memory");
}

#[test]
fn a_body_that_never_ends_is_refused() {
    let (status, reply) =
        send(server(Duration::from_millis(300)), b"POST /predict HTTP/1.1\r\nContent-Length: 9\r\n\r\n{");
    assert!(status == 408 && reply.contains("took too long"), "{status}: {reply}");
}

#[test]
fn a_connection_that_says_nothing_or_never_reads_is_ended() {
    let address = server(Duration::from_millis(200));
    let mut idle = TcpStream::connect(address).expect("it listens");
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).expect("the server ends it");
    assert!(rest.is_empty(), "nothing was asked: {}", String::from_utf8_lossy(&rest));
    let mut head = TcpStream::connect(address).expect("it listens");
    head.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n").expect("it takes a part");
    head.read_to_end(&mut rest).expect("the server ends it");
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
    // A whole life is bounded, too: asked again and again, a connection ends.
    let mut busy = TcpStream::connect(address).expect("it listens");
    let mut piece = [0; 65_536];
    loop {
        let sent = busy.write_all(b"GET /about HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if sent.is_err() || matches!(busy.read(&mut piece), Ok(0) | Err(_)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(get(address, "/about").0, 200, "others are answered");
}

#[test]
fn requests_one_behind_the_other_are_answered_in_turn() {
    let address = server(Duration::from_secs(60));
    let question = json!({ "operators": ["soft:m=100,n=200"], "device": "middle" }).to_string();
    let mut bytes = Vec::new();
    for _ in 0..3 {
        bytes.extend_from_slice(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = format!("POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", question.len());
        bytes.extend_from_slice((head + &question).as_bytes());
    }
    // In pieces, as some clients send a body.
    let head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    bytes.extend_from_slice(format!("{head}{:x}\r\n{question}\r\n0\r\n\r\n", question.len()).as_bytes());
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(&bytes).expect("it takes them");
    let mut replies = String::new();
    stream.read_to_string(&mut replies).expect("replies");
    let statuses: Vec<&str> = replies.match_indices("HTTP/1.1 ").map(|(at, _)| &replies[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["404", "200", "404", "200", "404", "200", "200"], "{replies}");
}
