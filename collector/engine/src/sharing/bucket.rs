//! Buckets with the S3 protocol, accessed through `curl`, which signs requests, checks certificates and knows proxies.
//!
//! Files are named by the hash of their content, so an object is created if it is absent and never changed: interrupted
//! transfers resume, and concurrent ones are safe. Access keys go to the standard input of `curl`, because every user
//! of a machine can read arguments.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::processes::{ProcessError, ProcessLimits, run_for_output};
use crate::soundness::wrong_schedule;
use crate::stores::store_failure;
use datasets::Store;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Shared folders of a store, each with the extension of its shared files.
const SHARED: [(&str, &str); 3] = [("dataset", ".parquet"), ("hosts", ".json"), ("configs", ".json")];
const MAX_DEPTH: usize = 6;
/// Largest number of list requests, each of which returns up to a thousand names.
const MAX_LISTS: usize = 10_000;
const MAX_LIST_BYTES: u64 = 16 << 20;
const MAX_OBJECT_BYTES: u64 = 4 << 30;
/// Time limit of one attempt to transfer an object, in seconds; `RETRIES` is the number of further attempts.
const OBJECT_SECONDS: u64 = 1800;
const RETRIES: u64 = 3;

/// Address of a folder in a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    name: String,
    prefix: String,
}

impl Bucket {
    /// Parses the part of an address after `s3://`.
    pub fn parse(rest: &str) -> std::result::Result<Bucket, String> {
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
        if name.len() < 3 || !name.bytes().all(is_plain) {
            return Err(format!("`{name}` is not a bucket name"));
        }
        let prefix = prefix.trim_matches('/');
        if prefix.split('/').any(|part| part == ".." || part == ".") {
            return Err(format!("`{prefix}` is not a prefix in a bucket"));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Bucket { name: name.to_owned(), prefix })
    }
}

/// S3 server, and access keys for it.
#[derive(Clone, Default)]
pub struct BucketServer {
    /// Address of the server; None for Amazon's server of the configured region.
    pub address: Option<String>,
    /// Region of the server; None for `us-east-1`.
    pub region: Option<String>,
    /// Name and secret of an access key; None for anonymous access.
    pub key: Option<(String, String)>,
    /// Token of a temporary access key.
    pub token: Option<String>,
}

impl BucketServer {
    fn region_or_default(&self) -> &str {
        self.region.as_deref().unwrap_or("us-east-1")
    }

    fn base_address(&self, bucket: &str) -> String {
        match &self.address {
            Some(address) => format!("{}/{bucket}", address.trim_end_matches('/')),
            None => format!("https://{bucket}.s3.{}.amazonaws.com", self.region_or_default()),
        }
    }

    fn curl_config(&self) -> String {
        let Some((id, secret)) = &self.key else { return String::new() };
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let mut lines = format!("aws-sigv4 = {}\n", quoted(&format!("aws:amz:{}:s3", self.region_or_default())));
        lines.push_str(&format!("user = {}\n", quoted(&format!("{id}:{secret}"))));
        // The name of a part is the hash of its content, which is checked after every transfer.
        lines.push_str("header = \"x-amz-content-sha256: UNSIGNED-PAYLOAD\"\n");
        if let Some(token) = &self.token {
            lines.push_str(&format!("header = {}\n", quoted(&format!("x-amz-security-token: {token}"))));
        }
        lines
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectCounts {
    /// Number of objects that were absent at the destination.
    pub new: u64,
    pub known: u64,
    /// Number of skipped objects, whose content does not match their name.
    pub damaged: u64,
}

pub struct BucketClient<'a> {
    bucket: &'a Bucket,
    base: String,
    server: &'a BucketServer,
    signal: &'a AtomicUsize,
}

impl<'a> BucketClient<'a> {
    /// Creates a client that stops when `signal` becomes non-zero.
    pub fn new(bucket: &'a Bucket, server: &'a BucketServer, signal: &'a AtomicUsize) -> BucketClient<'a> {
        BucketClient { bucket, base: server.base_address(&bucket.name), server, signal }
    }

    pub fn push(&self, store: &Store) -> Result<ObjectCounts> {
        let present = self.list_objects()?;
        let mut counts = ObjectCounts::default();
        for name in shared_files(store.root())? {
            let is_new = !present.contains(&name) && self.create_object(&name, &store.root().join(&name))?;
            *(if is_new { &mut counts.new } else { &mut counts.known }) += 1;
        }
        Ok(counts)
    }

    /// Downloads the objects that a store lacks, and discards those whose content does not match their name. The store
    /// is created, if needed, once the list and the first object were received.
    pub fn pull(&self, root: &Path, observer: &dyn Observer) -> Result<ObjectCounts> {
        Store::check_place(root).map_err(store_failure)?;
        let names = self.list_objects()?;
        let here: BTreeSet<String> = shared_files(root)?.into_iter().collect();
        let mut counts = ObjectCounts::default();
        for name in names {
            if here.contains(&name) {
                counts.known += 1;
                continue;
            }
            let folder = tempfile::tempdir().map_err(Failure::environment)?;
            let staged = Store::create(folder.path()).map_err(store_failure)?;
            let file = folder.path().join(&name);
            let above = file.parent().unwrap_or(folder.path());
            std::fs::create_dir_all(above).map_err(Failure::environment)?;
            self.download_object(&name, &file)?;
            let merged = Store::create(root)
                .map_err(store_failure)?
                .merge_with(&staged, &wrong_schedule)
                .map_err(store_failure)?;
            match merged.damage.first() {
                None => counts.new += 1,
                Some(damage) => {
                    counts.damaged += 1;
                    let prefix = &self.bucket.prefix;
                    observer.note(format!("`{prefix}{name}` was changed after the push and is skipped: {damage}"));
                }
            }
        }
        Store::create(root).map_err(store_failure)?;
        Ok(counts)
    }

    fn list_objects(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        let mut next: Option<String> = None;
        for _ in 0..MAX_LISTS {
            let from = next.take().map(|token| format!("continuation-token={}&", encode_parameter(&token)));
            let prefix = encode_parameter(&self.bucket.prefix);
            let query = format!("{}encoding-type=url&list-type=2&prefix={prefix}", from.unwrap_or_default());
            let answer = tempfile::NamedTempFile::new().map_err(Failure::environment)?;
            let code = self.send_request(&format!("{}/?{query}", self.base), answer.path(), MAX_LIST_BYTES, &[])?;
            let text = std::fs::read_to_string(answer.path()).map_err(Failure::environment)?;
            if code != 200 {
                return Err(self.request_failure("cannot list", "", code, &text));
            }
            let page = list_page(&text, &self.bucket.prefix);
            names.extend(page.0);
            next = page.1;
            if next.is_none() {
                return Ok(names);
            }
        }
        Err(Failure::environment(format!("`{}` contains too many objects to list", self.base)))
    }

    /// Creates an object if it is absent. Returns whether it was created.
    fn create_object(&self, name: &str, file: &Path) -> Result<bool> {
        let answer = tempfile::NamedTempFile::new().map_err(Failure::environment)?;
        let more = [
            "--upload-file".to_owned(),
            file.display().to_string(),
            "--header".to_owned(),
            "If-None-Match: *".to_owned(),
        ];
        match self.send_request(&self.object_address(name), answer.path(), MAX_LIST_BYTES, &more)? {
            200 | 201 | 204 => Ok(true),
            412 => Ok(false),
            code => Err(self.request_failure("cannot write", name, code, &read_beginning(answer.path()))),
        }
    }

    fn download_object(&self, name: &str, file: &Path) -> Result<()> {
        match self.send_request(&self.object_address(name), file, MAX_OBJECT_BYTES, &[])? {
            200 => Ok(()),
            code => Err(self.request_failure("cannot read", name, code, &read_beginning(file))),
        }
    }

    fn object_address(&self, name: &str) -> String {
        format!("{}/{}", self.base, encode_path(&format!("{}{name}", self.bucket.prefix)))
    }

    /// Sends a request, writes the response body to `answer` and returns the status. Fails above `max_bytes`.
    fn send_request(&self, url: &str, answer: &Path, max_bytes: u64, more: &[String]) -> Result<u16> {
        let mut command = Command::new("curl");
        command.args([
            "--config",
            "-",
            "--silent",
            "--show-error",
            "--connect-timeout",
            "10",
            "--max-time",
            &OBJECT_SECONDS.to_string(),
            "--retry",
            &RETRIES.to_string(),
            "--max-filesize",
            &max_bytes.to_string(),
        ]);
        command.args(["--speed-limit", "1000", "--speed-time", "60", "--write-out", "%{http_code}"]);
        command.args(["--proto", "=http,https", "--globoff", "--output"]).arg(answer).args(more).arg(url);
        // A server may not announce the size of a response, so the size of the file is checked.
        let is_too_much = || std::fs::metadata(answer).is_ok_and(|found| found.len() > max_bytes);
        let kill_reason = || is_too_much().then(|| format!("the server sends more than {max_bytes} bytes"));
        let deadline = Duration::from_secs((RETRIES + 1) * (OBJECT_SECONDS + 60));
        let secrets = self.server.curl_config();
        let limits = ProcessLimits { deadline, max_bytes: 1 << 10, signal: self.signal, kill_reason: &kill_reason };
        let cannot = |why: &str| {
            Failure::environment(format!("cannot reach `{}`: {why}", self.base))
                .with_hint("run the same command again to continue; AWS_ENDPOINT_URL selects another server")
        };
        let code = run_for_output(&mut command, secrets.as_bytes(), &limits).map_err(|error| match error {
            ProcessError::Start(_) => Failure::environment(format!("buckets need the program `curl`: {error}"))
                .with_hint("install it, on Debian with `apt install curl`"),
            ProcessError::Ended(why) => cannot(&why),
        })?;
        let code = String::from_utf8_lossy(&code).trim().parse();
        code.map_err(|_| Failure::environment("`curl` did not report the status of a request"))
    }

    fn request_failure(&self, doing: &str, name: &str, code: u16, answer: &str) -> Failure {
        let word = element_texts(answer, "Code").next().unwrap_or("no reason given");
        let failure = Failure::environment(format!(
            "{doing} `{}/{}{name}`: {word} (status {code})",
            self.base, self.bucket.prefix
        ));
        match code {
            401 | 403 => failure.with_hint(
                "check that the access key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may list, read and write \
                 the bucket",
            ),
            404 => failure.with_hint("create the bucket first, or set AWS_ENDPOINT_URL to its server"),
            _ => failure.with_hint("run the same command again to continue"),
        }
    }
}

fn read_beginning(path: &Path) -> String {
    use std::io::Read;
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(1 << 16).read_to_end(&mut text));
    read.map_or_else(|error| error.to_string(), |_| String::from_utf8_lossy(&text).into_owned())
}

fn shared_files(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (folder, _) in SHARED {
        gather_files(root, Path::new(folder), 0, &mut names)?;
    }
    names.sort_unstable();
    Ok(names)
}

fn gather_files(root: &Path, folder: &Path, depth: usize, names: &mut Vec<String>) -> Result<()> {
    let entries = match std::fs::read_dir(root.join(folder)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Failure::environment)?,
    };
    for entry in entries {
        let entry = entry.map_err(Failure::environment)?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type().map_err(Failure::environment)?;
        if kind.is_dir() && depth < MAX_DEPTH {
            gather_files(root, &path, depth + 1, names)?;
        } else if let Some(name) = path.to_str().filter(|name| kind.is_file() && is_shared(name)) {
            // Links are skipped, because they could point to any file of this machine.
            names.push(name.to_owned());
        }
    }
    Ok(())
}

fn is_shared(name: &str) -> bool {
    let path = PathBuf::from(name);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_hidden = path.file_name().and_then(|name| name.to_str()).is_none_or(|name| name.starts_with('.'));
    is_below
        && !is_hidden
        && path.components().count() <= MAX_DEPTH + 1
        && SHARED.iter().any(|(folder, end)| {
            name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')) && name.ends_with(end)
        })
}

/// Parses a response to a list request: the names of shared files, and the token of the next request.
pub fn list_page(text: &str, prefix: &str) -> (Vec<String>, Option<String>) {
    let names =
        element_texts(text, "Key").filter_map(decode_name).filter_map(|key| Some(key.strip_prefix(prefix)?.to_owned()));
    let next = element_texts(text, "NextContinuationToken").next().map(str::to_owned);
    (names.filter(|name| is_shared(name)).collect(), next)
}

/// Returns the text of each XML element named `tag`. Elements in S3's responses have no attributes.
fn element_texts<'a>(text: &'a str, tag: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let begin = rest.find(&open)? + open.len();
        let end = begin + rest[begin..].find(&close)?;
        let found = &rest[begin..end];
        rest = &rest[end + close.len()..];
        Some(found)
    })
}

/// Bytes that S3 signatures require to be percent-encoded: all except letters, digits and `-._~`.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn encode_parameter(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &ENCODED)
}

/// Percent-encodes the path of a URL, except for slashes.
fn encode_path(text: &str) -> PercentEncode<'_> {
    const PATH: AsciiSet = ENCODED.remove(b'/');
    utf8_percent_encode(text, &PATH)
}

/// Decodes a percent-encoded name from a list response; a plus sign is a space. None if the name is malformed.
fn decode_name(text: &str) -> Option<String> {
    let is_encoded = |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_encoded) {
        return None;
    }
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_store_files_are_listed() {
        for fine in ["dataset/part_target=llvm/host=a/part-0.parquet", "hosts/vm/peaks-1.json", "configs/a.json"] {
            assert!(is_shared(fine), "{fine}");
        }
        let long = format!("dataset/{}part-0.parquet", "a/".repeat(20));
        for wrong in [
            "dataset/../x.parquet",
            "/dataset/x.parquet",
            "dataset/.x.parquet",
            "dataset.parquet",
            "journal/a.json",
            "dataset/x",
            &long,
        ] {
            assert!(!is_shared(wrong), "{wrong}");
        }
    }

    #[test]
    fn encoded_names_are_decoded() {
        for text in ["a=b/c d+e%", "ü", ""] {
            assert_eq!(decode_name(&encode_parameter(text).to_string()).as_deref(), Some(text));
            assert_eq!(decode_name(&encode_path(text).to_string()).as_deref(), Some(text));
        }
        assert_eq!([encode_parameter("a=/b~").to_string(), encode_path("a=/b~").to_string()], ["a%3D%2Fb~", "a%3D/b~"]);
        assert_eq!((decode_name("%"), decode_name("%4x"), decode_name("%ff")), (None, None, None));
        assert_eq!((decode_name("%41"), decode_name("a+b").as_deref()), (Some("A".to_owned()), Some("a b")));
        assert_eq!(element_texts("<Key>a</Key><Key>b</Key><Key>c", "Key").collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn bucket_addresses_are_validated() {
        for wrong in ["", "a", "UPPER", "a b", "bucket/../x"] {
            assert!(Bucket::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Bucket::parse("bucket/a/b/").map(|bucket| bucket.prefix), Ok("a/b/".to_owned()));
    }
}
