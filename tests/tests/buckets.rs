//! Sharing through a real S3 server: parts are copied once, restored, and continued after a kill.
#![allow(clippy::print_stderr, missing_docs)]

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tests::workspace::root;
use tests::{Bench, Ran, run, skip, stores};

const FEW: &str = "--modelsource simple --modelname relu:shape=1x64 --modelname softmax:shape=3x17 \
                   --schedules 5 --config quick.toml";

/// Creates a bucket and two users, with exactly the `REQUESTS` requests that the server answers without checking keys.
const PREPARE: &str = r#"
import boto3, json, sys
talk = lambda name: boto3.client(name, endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
iam = talk("iam")
talk("s3").create_bucket(Bucket="lab-data")
keys = []
for name in ("may", "may-not"):
    iam.create_user(UserName=name)
    keys.append(iam.create_access_key(UserName=name)["AccessKey"])
policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
iam.put_user_policy(UserName="may", PolicyName="all", PolicyDocument=json.dumps(policy))
print(json.dumps([[key["AccessKeyId"], key["SecretAccessKey"]] for key in keys]))
"#;
const REQUESTS: &str = "6";

struct Server {
    process: Child,
    address: String,
    may: (String, String),
    may_not: (String, String),
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn begin() -> Option<Server> {
        let python = root().join(".venv/bin/python");
        let has = Command::new(&python).args(["-c", "import moto, flask, boto3"]).stderr(Stdio::null()).status();
        if !has.is_ok_and(|status| status.success()) || Command::new("curl").arg("--version").output().is_err() {
            skip("there is no `moto` in .venv, or no `curl`");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
        let mut command = Command::new(&python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        command.env("INITIAL_NO_AUTH_ACTION_COUNT", REQUESTS).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("the server starts");
        let address = format!("http://127.0.0.1:{port}");
        let unknown = (String::new(), String::new());
        let mut server = Server { process, address, may: unknown.clone(), may_not: unknown };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the server does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        let prepared = Command::new(&python).args(["-c", PREPARE, &server.address]).output().expect("Python starts");
        assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
        let keys: [(String, String); 2] = serde_json::from_slice(&prepared.stdout).expect("keys");
        [server.may, server.may_not] = keys;
        Some(server)
    }

    fn command(&self, bench: &Bench, keys: &(String, String), arguments: &str) -> Command {
        let mut command = bench.opcollect(arguments);
        command.env("AWS_ENDPOINT_URL", &self.address).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", &keys.0).env("AWS_SECRET_ACCESS_KEY", &keys.1);
        command
    }

    fn ask(&self, bench: &Bench, arguments: &str) -> Ran {
        run(self.command(bench, &self.may, arguments))
    }
}

#[test]
fn a_bucket_stores_parts_once_and_returns_them() {
    let Some(server) = Server::begin() else { return };
    let bench = Bench::new();
    run(bench.opcollect(&format!("{FEW} --store store --json"))).expect(0);
    let place = "s3://lab-data/nights/first%20team";
    // The pushing process is killed repeatedly, each time a little later.
    let mut kills = 0;
    for milliseconds in [5, 20, 40, 80] {
        let mut pushing = server
            .command(&bench, &server.may, &format!("dataset push --store store {place}"))
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_millis(milliseconds));
        kills += usize::from(pushing.try_wait().is_ok_and(|ended| ended.is_none()));
        let _ = pushing.kill();
        let _ = pushing.wait();
    }
    let push = format!("dataset push --store store {place} --json");
    let first = server.ask(&bench, &push).expect(0).json();
    let shared = first["parts"].as_u64().unwrap_or_default() + first["known"].as_u64().unwrap_or_default();
    assert!(shared >= 2, "parts, configurations and peaks: {first}");
    eprintln!("note: {kills} pushes were killed, {} of {shared} objects were there then", first["known"]);
    let again = server.ask(&bench, &push).expect(0).json();
    assert_eq!((again["parts"].as_u64(), again["known"].as_u64()), (Some(0), Some(shared)), "nothing is brought twice");

    let pull = format!("dataset pull --store other {place} --json");
    assert_eq!(server.ask(&bench, &pull).expect(0).json()["parts"].as_u64(), Some(shared));
    assert_eq!(server.ask(&bench, &pull).expect(0).json()["parts"].as_u64(), Some(0));
    assert_eq!(
        stores::keys(&stores::records(&bench.path("other"))),
        stores::keys(&stores::records(&bench.path("store")))
    );
    let elsewhere = server.ask(&bench, "dataset pull --store none s3://lab-data/nights/other --json").expect(0).json();
    assert_eq!(elsewhere["parts"].as_u64(), Some(0), "{elsewhere}");

    let refused = |keys: &(String, String), place: &str, why: &str| {
        let ran = run(server.command(&bench, keys, &format!("dataset push --store store {place}"))).expect(3);
        assert!(ran.stderr.contains(why) && !ran.stderr.contains(&server.may.1), "{ran}");
    };
    refused(&server.may_not, place, "AccessDenied (status 403)");
    refused(&(server.may.0.clone(), "wrong".to_owned()), place, "SignatureDoesNotMatch (status 403)");
    refused(&server.may, "s3://no-such-bucket", "NoSuchBucket (status 404)");
    for (keys, place) in [(&server.may, "s3://no-such-bucket"), (&server.may_not, place)] {
        run(server.command(&bench, keys, &format!("dataset pull --store new {place}"))).expect(3);
        assert!(!bench.path("new").exists(), "a failed pull creates no store");
    }
    let sink = server.command(&bench, &server.may_not, &format!("{FEW} --store store --sink {place} --json"));
    let ran = run(sink).expect(1);
    assert!(ran.stderr.contains("AccessDenied"), "a sink without rights delays and loses nothing\n{ran}");
}
