use std::fs;

use http::header::ETAG;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// A folder with bodies, and the manifest that lists them.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Writes a body and returns its description.
    fn body(&self, file: &str, content: &[u8]) -> Value {
        fs::write(self.0.path().join(file), content).expect("write");
        let mut hash = Context::new(&SHA256);
        hash.update(content);
        let hash = hash
            .finish()
            .as_ref()
            .iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        json!({ "file": file, "size": content.len(), "sha256": hash })
    }

    fn manifest(&self, manifest: &Value) -> &Self {
        fs::write(self.0.path().join(MANIFEST), manifest.to_string()).expect("write");
        self
    }

    fn with_entries(&self, entries: &[Value]) -> &Self {
        self.manifest(
            &json!({ "schema": 1, "url": "https://a.test/", "requests": 1, "entries": entries }),
        )
    }

    fn open(&self) -> Result<Recording, RecordingError> {
        Recording::open(self.0.path())
    }

    fn refusal(&self) -> String {
        self.open().err().expect("a refusal").to_string()
    }
}

fn entry(body: &Value) -> Value {
    json!({ "method": "GET", "url": "https://a.test/", "status": 200, "headers": [], "body": body })
}

fn lines(representation: &Representation) -> &HeaderMap {
    representation.fields.lines()
}

#[test]
fn fields_of_the_connection_and_of_the_server_are_left_out_and_timing_is_allowed() {
    let folder = Folder::new();
    let mut recorded = entry(&folder.body("b", b"hello"));
    recorded["headers"] = json!([
        ["connection", "close"],
        ["transfer-encoding", "chunked"],
        ["keep-alive", "1"],
        ["date", "x"],
        ["server", "other"],
        ["alt-svc", "h3=\":443\""],
        ["content-length", "99"],
        ["content-encoding", "br"],
        ["nel", "{}"],
        ["timing-allow-origin", "https://b.test"],
        ["etag", "\"1\""],
        ["link", "</a>"],
        ["link", "</b>"],
    ]);
    let opened = folder.with_entries(&[recorded]).open().expect("a recording");
    let fields = lines(&opened.opened.entries[0].plain);
    let names: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(fields[ETAG], "\"1\"");
    assert_eq!(fields.get_all("link").iter().count(), 2);
    assert_eq!(fields[TIMING_ALLOW_ORIGIN], "*");
    assert_eq!(fields[CONTENT_LENGTH], "5");
}

#[test]
fn think_time_is_as_recorded_and_none_where_none_is_known() {
    let folder = Folder::new();
    let thoughtless = entry(&folder.body("b", b"hello"));
    let mut thoughtful = thoughtless.clone();
    thoughtful["thinkSeconds"] = json!(0.25);
    thoughtful["url"] = json!("https://a.test/2");
    let opened =
        folder.with_entries(&[thoughtless.clone(), thoughtful]).open().expect("a recording");
    let times: Vec<_> = opened.opened.entries.iter().map(|entry| entry.think_time).collect();
    assert_eq!(times, [Duration::ZERO, Duration::from_millis(250)]);
    for wrong in [-1.0, 601.0] {
        let mut recorded = thoughtless.clone();
        recorded["thinkSeconds"] = json!(wrong);
        let refusal = folder.with_entries(&[recorded]).refusal();
        assert!(
            refusal.contains("entries[0]: invalid `thinkSeconds` ") && refusal.contains("0 to 600"),
            "{refusal}"
        );
    }
}

#[test]
fn encoded_content_is_for_those_who_take_its_coding() {
    let folder = Folder::new();
    let mut recorded = entry(&folder.body("b", b"plain text"));
    recorded["encoded"] = folder.body("b.br", b"packed");
    recorded["encoded"]["coding"] = "br".into();
    let opened = folder.with_entries(&[recorded]).open().expect("a recording");
    let entry = &opened.opened.entries[0];
    for (accept, is_encoded) in [
        (Some("gzip, br"), true),
        (Some("BR;q=0.5"), true),
        (Some("*"), true),
        (Some("br;q=0, *"), false),
        (Some("gzip"), false),
        (Some("*;q=0"), false),
        (None, false),
    ] {
        let request = accept
            .map(|value| (ACCEPT_ENCODING, HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        let chosen = lines(entry.choose(&request));
        assert_eq!(chosen.contains_key(CONTENT_ENCODING), is_encoded, "{accept:?}");
        assert_eq!(chosen[CONTENT_LENGTH], if is_encoded { "6" } else { "10" });
    }
}

#[test]
fn large_body_stays_on_disk_and_small_one_comes_into_memory() {
    let folder = Folder::new();
    let (small, large) =
        (folder.body("small", &[1; 1000]), folder.body("large", &vec![2; 3_000_000]));
    let opened = folder.with_entries(&[entry(&small), entry(&large)]).open().expect("a recording");
    let [one, other] = opened.opened.entries.as_slice() else { panic!("two entries") };
    assert!(matches!(&one.plain.content, Stored::Memory(bytes) if bytes.len() == 1000));
    assert!(matches!(&other.plain.content, Stored::File { size: 3_000_000, .. }));
}

#[test]
fn body_that_is_not_what_was_recorded_is_refused() {
    for (content, reason) in [
        (&b"hellx"[..], "b: content differs from the recording"),
        (b"hello!", "b: size differs from the recording"),
    ] {
        let folder = Folder::new();
        let recorded = entry(&folder.body("b", b"hello"));
        folder.with_entries(&[recorded]).body("b", content);
        assert!(folder.refusal().ends_with(reason), "{}", folder.refusal());
    }
    let folder = Folder::new();
    let large = vec![0; 2_500_000];
    let recorded = entry(&folder.body("b", &large));
    let mut changed = large;
    changed[2_400_000] = 1;
    folder.with_entries(&[recorded]).body("b", &changed);
    assert!(folder.refusal().ends_with("b: content differs from the recording"));
}

#[test]
fn body_that_is_missing_or_outside_of_the_folder_is_refused() {
    let folder = Folder::new();
    let mut recorded = entry(&folder.body("b", b"hello"));
    recorded["body"]["file"] = "nowhere".into();
    let refused = folder.with_entries(&[recorded.clone()]).open().err();
    assert!(
        matches!(refused, Some(RecordingError::File { path, .. }) if path.ends_with("nowhere"))
    );
    for file in ["../b", "/etc/hostname"] {
        recorded["body"]["file"] = file.into();
        assert!(
            folder
                .with_entries(&[recorded.clone()])
                .refusal()
                .contains("is outside of the recording's folder")
        );
    }
}

#[test]
fn malformed_manifest_is_refused_at_its_place() {
    let folder = Folder::new();
    assert!(matches!(folder.open(), Err(RecordingError::File { .. })));
    folder.manifest(&json!({ "schema": 2, "pages": [] }));
    assert!(folder.refusal().contains("unsupported schema 2: expected 1"));
    assert!(folder.with_entries(&[]).refusal().contains("no entries"));
    let body = folder.body("b", b"hello");
    for (key, value, says) in [
        ("method", json!("GET IT"), "entries[1]: invalid method \"GET IT\""),
        (
            "url",
            json!("ftp://a.test/"),
            "entries[1]: invalid URL \"ftp://a.test/\": expected http or https",
        ),
        ("url", json!("/path"), "expected http or https"),
        ("status", json!(101), "entries[1]: invalid status 101: expected 200 to 599"),
        ("status", json!(2000), "invalid status 2000"),
        ("headers", json!([["a b", "c"]]), "invalid header name \"a b\""),
        ("headers", json!([["a", "c\nd"]]), "invalid header value"),
        ("body", json!(null), "entries[1]: `encoded` without `body`"),
    ] {
        let mut wrong = entry(&body);
        wrong["encoded"] = body.clone();
        wrong["encoded"]["coding"] = "br".into();
        wrong[key] = value;
        let refusal = folder.with_entries(&[entry(&body), wrong]).refusal();
        assert!(refusal.contains(says), "{refusal}");
    }
}
