//! Files that change while they are served, from a client's view.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pronghorn_engine::{Config, Group, Listener, Workers};
use pronghorn_gateway::{AccessLog, StaticFiles};
use rustix::thread::CapabilitySet;
use tempfile::TempDir;

/// A worker that serves a folder over HTTP/1.1.
struct Server {
    workers: Option<Workers>,
    address: SocketAddr,
}

impl Server {
    fn start(files: StaticFiles) -> Self {
        // Root may read everything, so those capabilities are removed. The worker and its helper
        // threads inherit this from the current thread.
        let mut may = rustix::thread::capabilities(None).expect("capabilities");
        may.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        rustix::thread::set_capabilities(None, may).expect("less is always allowed");
        let config = Config::default();
        let listener =
            Listener::clear((Ipv4Addr::LOCALHOST, 0).into(), 1, config.congestion).expect("bind");
        let address = listener.address();
        let workers =
            Workers::start(Group::new(1), vec![listener], None, &config, move |_| files.handler())
                .expect("start");
        Self { workers: Some(workers), address }
    }

    fn of(folder: &TempDir) -> Self {
        Self::start(StaticFiles::new(folder.path()).expect("a folder"))
    }

    fn connect(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(self.address).expect("connect")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let workers = self.workers.take().expect("dropped once");
        workers.shut_down(Duration::ZERO);
        workers.join().expect("no worker failed");
    }
}

/// A persistent connection.
struct Client(BufReader<TcpStream>);

#[derive(Debug)]
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    fn length(&self) -> usize {
        self.field("content-length").map_or(0, |length| length.parse().expect("a number"))
    }
}

impl Client {
    fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// `fields` has complete lines.
    fn ask(&mut self, method: &str, path: &str, fields: &str) -> Answer {
        let mut answer = self.ask_for_head(method, path, fields);
        if method != "HEAD" && answer.status != 304 {
            answer.body = vec![0; answer.length()];
            self.0.read_exact(&mut answer.body).expect("the content is whole");
        }
        answer
    }

    fn ask_for_head(&mut self, method: &str, path: &str, fields: &str) -> Answer {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
        self.0.get_mut().write_all(head.as_bytes()).expect("send");
        let mut lines = self
            .0
            .by_ref()
            .lines()
            .map(|line| line.expect("a line"))
            .take_while(|line| !line.is_empty());
        let status = lines.next().expect("a status line")[9..12].parse().expect("a status");
        let fields = lines
            .filter_map(|line| {
                line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()))
            })
            .collect();
        Answer { status, fields, body: Vec::new() }
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) {
    fs::write(folder.path().join(name), content).expect("write");
}

fn set_modified(path: &Path, time: SystemTime) {
    File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_modified(time))
        .expect("set the time");
}

/// Waits until a server may cache the file after its last change.
fn settle(path: &Path) {
    let stat = fs::metadata(path).expect("stat");
    let changed =
        SystemTime::UNIX_EPOCH + Duration::new(stat.ctime() as u64, stat.ctime_nsec() as u32);
    while changed.elapsed().is_ok_and(|age| age < Duration::from_millis(30)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn change_of_same_size_and_time_is_served_at_once() {
    let folder = folder();
    let path = folder.path().join("page.txt");
    write(&folder, "page.txt", "before");
    let modified = fs::metadata(&path).and_then(|stat| stat.modified()).expect("a time");
    settle(&path);
    let server = Server::of(&folder);
    let mut client = server.connect();
    let before = client.get("/page.txt");
    assert_eq!((before.status, &before.body[..]), (200, &b"before"[..]));
    assert_eq!(client.get("/page.txt").body, b"before");
    write(&folder, "page.txt", "behind");
    set_modified(&path, modified);
    assert_eq!(client.get("/page.txt").body, b"behind");
}

#[test]
fn changes_within_one_tick_of_the_clock_are_all_served() {
    let folder = folder();
    write(&folder, "counter", "0000");
    let server = Server::of(&folder);
    let mut client = server.connect();
    for number in 0..500 {
        let content = format!("{number:04}");
        // In place and without truncation, so that versions differ only in content.
        File::options()
            .write(true)
            .open(folder.path().join("counter"))
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .expect("write");
        assert_eq!(client.get("/counter").body, content.as_bytes());
    }
}

#[test]
fn file_that_took_the_name_of_another_is_served() {
    let folder = folder();
    let (path, other) = (folder.path().join("page.txt"), folder.path().join("other.txt"));
    write(&folder, "page.txt", "before");
    let modified = fs::metadata(&path).and_then(|stat| stat.modified()).expect("a time");
    settle(&path);
    let server = Server::of(&folder);
    let mut client = server.connect();
    assert_eq!(client.get("/page.txt").body, b"before");
    write(&folder, "other.txt", "behind");
    set_modified(&other, modified);
    fs::rename(&other, &path).expect("rename");
    assert_eq!(client.get("/page.txt").body, b"behind");
    assert_eq!(client.get("/other.txt").status, 404);
}

#[test]
fn deleted_file_is_gone_and_comes_back() {
    let folder = folder();
    let path = folder.path().join("page.txt");
    write(&folder, "page.txt", "before");
    settle(&path);
    let server = Server::of(&folder);
    let mut client = server.connect();
    assert_eq!(client.get("/page.txt").body, b"before");
    fs::remove_file(&path).expect("delete");
    assert_eq!(client.get("/page.txt").status, 404);
    write(&folder, "page.txt", "again");
    assert_eq!(client.get("/page.txt").body, b"again");
    fs::remove_file(&path).expect("delete");
    fs::create_dir(&path).expect("a folder in its place");
    let redirect = client.get("/page.txt");
    assert_eq!((redirect.status, redirect.field("location")), (301, Some("./page.txt/")));
}

#[test]
fn link_that_is_turned_to_lead_outside_leads_nowhere() {
    let outside = folder();
    write(&outside, "page.txt", "secret");
    let folder = folder();
    fs::create_dir(folder.path().join("inside")).expect("a folder");
    write(&folder, "inside/page.txt", "public");
    settle(&folder.path().join("inside/page.txt"));
    let turn = |link: &str, target: &Path| {
        let fresh = folder.path().join("fresh");
        symlink(target, &fresh)
            .and_then(|()| fs::rename(&fresh, folder.path().join(link)))
            .expect("a link");
    };
    turn("link.txt", Path::new("inside/page.txt"));
    turn("linked", Path::new("inside"));
    let server = Server::of(&folder);
    let mut client = server.connect();
    for path in ["/link.txt", "/linked/page.txt"] {
        assert_eq!(client.get(path).body, b"public", "{path}");
        assert_eq!(client.get(path).body, b"public", "{path}");
    }
    turn("link.txt", &outside.path().join("page.txt"));
    turn("linked", outside.path());
    for path in ["/link.txt", "/linked/page.txt"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    // Not even to the file that was served before, through a path outside.
    turn("link.txt", &folder.path().join("inside/page.txt"));
    assert_eq!(client.get("/link.txt").status, 404);
    turn("link.txt", Path::new("inside/page.txt"));
    assert_eq!(client.get("/link.txt").body, b"public");
}

#[test]
fn permission_that_was_taken_away_counts_at_once() {
    let folder = folder();
    let path = folder.path().join("page.txt");
    write(&folder, "page.txt", "public");
    settle(&path);
    let server = Server::of(&folder);
    let mut client = server.connect();
    assert_eq!(client.get("/page.txt").body, b"public");
    assert_eq!(client.get("/page.txt").body, b"public");
    fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("chmod");
    assert_eq!(client.get("/page.txt").status, 403);
    fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("chmod");
    assert_eq!(client.get("/page.txt").body, b"public");
    fs::create_dir(folder.path().join("sub")).expect("a folder");
    write(&folder, "sub/page.txt", "below");
    settle(&folder.path().join("sub/page.txt"));
    assert_eq!(client.get("/sub/page.txt").body, b"below");
    fs::set_permissions(folder.path().join("sub"), Permissions::from_mode(0o000)).expect("chmod");
    assert_eq!(client.get("/sub/page.txt").status, 403);
    fs::set_permissions(folder.path().join("sub"), Permissions::from_mode(0o700)).expect("chmod");
}

#[test]
fn kept_file_answers_ranges_conditions_and_head() {
    let folder = folder();
    write(&folder, "page.html", "0123456789");
    settle(&folder.path().join("page.html"));
    let server = Server::of(&folder);
    let mut client = server.connect();
    let whole = client.get("/page.html");
    for _ in 0..2 {
        let part = client.ask("GET", "/page.html", "range: bytes=2-4\r\n");
        assert_eq!(
            (part.status, &part.body[..], part.field("content-range")),
            (206, &b"234"[..], Some("bytes 2-4/10"))
        );
        let none = client.ask("GET", "/page.html", "range: bytes=10-\r\n");
        assert_eq!((none.status, none.field("content-range")), (416, Some("bytes */10")));
        let etag = whole.field("etag").expect("a tag");
        let same = client.ask("GET", "/page.html", &format!("if-none-match: {etag}\r\n"));
        assert_eq!(
            (same.status, same.field("etag"), same.field("last-modified")),
            (304, Some(etag), whole.field("last-modified"))
        );
        assert_eq!(client.ask("GET", "/page.html", "if-match: \"other\"\r\n").status, 412);
        let head = client.ask("HEAD", "/page.html", "");
        for name in ["content-length", "content-type", "etag", "last-modified", "accept-ranges"] {
            assert_eq!(head.field(name), whole.field(name), "{name}");
        }
        assert_eq!(client.get("/page.html").body, whole.body);
    }
}

#[test]
fn file_that_is_cut_while_it_is_served_ends_short() {
    let folder = folder();
    let path = folder.path().join("big.bin");
    fs::write(&path, vec![7; 32 << 20]).expect("write");
    let server = Server::of(&folder);
    let mut client = server.connect();
    let answer = client.ask_for_head("GET", "/big.bin", "");
    assert_eq!((answer.status, answer.length()), (200, 32 << 20));
    // The socket buffers hold far less than the rest.
    File::options().write(true).open(&path).and_then(|file| file.set_len(1 << 20)).expect("cut");
    let mut rest = Vec::new();
    // Ended or reset: either way less than announced arrives.
    let _ = client.0.read_to_end(&mut rest);
    assert!(rest.len() < 32 << 20, "{} bytes came", rest.len());
    assert!(rest.iter().all(|byte| *byte == 7));
}

#[test]
fn large_file_that_leaves_memory_while_it_is_served_comes_whole() {
    let folder = folder();
    let path = folder.path().join("big.bin");
    let content: Vec<u8> =
        (0..4_u32 << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&path, &content).expect("write");
    let file = File::open(&path).expect("open");
    file.sync_all().expect("written to the disk");
    let server = Server::of(&folder);
    let mut client = server.connect();
    let answer = client.ask_for_head("GET", "/big.bin", "");
    let mut got = vec![0; answer.length()];
    for piece in got.chunks_mut(256 << 10) {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
        client.0.read_exact(piece).expect("the content is whole");
    }
    assert!(got == content);
}

#[test]
fn log_counts_what_is_answered_from_memory() {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let folder = folder();
    write(&folder, "page.txt", "hello");
    settle(&folder.path().join("page.txt"));
    let lines = Lines::default();
    let log = Arc::new(AccessLog::new(lines.clone()));
    let server =
        Server::start(StaticFiles::new(folder.path()).expect("a folder").with_log(log.clone()));
    let mut client = server.connect();
    for path in ["/page.txt", "/page.txt?again", "/nothing"] {
        client.get(path);
    }
    drop(server);
    drop(log);
    let text = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("text");
    let ends: Vec<_> = text
        .lines()
        .map(|line| line.split(' ').skip(2).take(5).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        ends,
        [
            "HTTP/1.1 GET /page.txt 200 5",
            "HTTP/1.1 GET /page.txt?again 200 5",
            "HTTP/1.1 GET /nothing 404 10"
        ]
    );
}

#[test]
fn link_to_the_folder_that_is_switched_is_followed_by_the_next_request() {
    let folder = folder();
    let link = folder.path().join("current");
    for (release, content) in [("one", "first"), ("two", "other"), ("three", "third")] {
        fs::create_dir(folder.path().join(release)).expect("a folder");
        write(&folder, &format!("{release}/page.txt"), content);
    }
    write(&folder, "two/new.txt", "new");
    // Twice, so that a link leads to a link.
    symlink("one", folder.path().join("release")).expect("a link");
    symlink("release", &link).expect("a link");
    settle(&folder.path().join("two/new.txt"));
    let server = Server::start(StaticFiles::new(&link).expect("a folder").with_listing());
    let mut client = server.connect();
    let switch = |target: &str| {
        symlink(target, folder.path().join("next")).expect("a link");
        fs::rename(folder.path().join("next"), folder.path().join("release")).expect("rename");
    };
    for _ in 0..2 {
        assert_eq!(
            (client.get("/page.txt").body, client.get("/new.txt").status),
            (b"first".to_vec(), 404)
        );
    }
    switch("two");
    assert_eq!(client.get("/page.txt").body, b"other");
    assert_eq!(client.get("/new.txt").body, b"new");
    assert!(String::from_utf8(client.get("/").body).expect("text").contains("new.txt"));
    switch("three");
    assert_eq!(
        (client.get("/new.txt").status, client.get("/page.txt").body),
        (404, b"third".to_vec())
    );
    // Workers may have seen different folders last.
    fs::remove_file(&link).expect("delete");
    for path in ["/page.txt", "/nothing", "/"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    symlink("one", &link).expect("a link");
    assert_eq!(client.get("/page.txt").body, b"first");
}

#[test]
fn folder_that_a_link_leads_to_keeps_its_rules() {
    let folder = folder();
    fs::create_dir_all(folder.path().join("one")).expect("a folder");
    fs::create_dir_all(folder.path().join("two/.git")).expect("a folder");
    write(&folder, "two/.git/config", "hidden");
    write(&folder, "secret", "outside");
    symlink("../secret", folder.path().join("two/secret")).expect("a link");
    symlink("one", folder.path().join("current")).expect("a link");
    let server = Server::start(StaticFiles::new(&folder.path().join("current")).expect("a folder"));
    let mut client = server.connect();
    assert_eq!(client.get("/secret").status, 404);
    symlink("two", folder.path().join("next")).expect("a link");
    fs::rename(folder.path().join("next"), folder.path().join("current")).expect("rename");
    for path in ["/secret", "/.git/config", "/../secret"] {
        assert_ne!(client.get(path).status, 200, "{path}");
    }
}
