//! Servers that are not Redis, or come between.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_fleet::sessions::{Address, RedisServers};

/// Replies to one command; nothing closes the connection.
pub(crate) type Replies = dyn Fn(&[Vec<u8>]) -> Option<Vec<u8>> + Send + Sync;

/// A server of which the test says each reply.
pub(crate) struct Fake {
    port: u16,
    replies: Arc<Mutex<Arc<Replies>>>,
    /// Number of open connections.
    open: Arc<AtomicUsize>,
}

impl Fake {
    pub(crate) fn start(
        replies: impl Fn(&[Vec<u8>]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let replies: Arc<Mutex<Arc<Replies>>> = Arc::new(Mutex::new(Arc::new(replies)));
        let its_replies = replies.clone();
        let open = Arc::<AtomicUsize>::default();
        let its_open = open.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let replies = its_replies.clone();
                let open = its_open.clone();
                std::thread::spawn(move || {
                    open.fetch_add(1, Relaxed);
                    serve(stream.unwrap(), &replies);
                    open.fetch_sub(1, Relaxed);
                });
            }
        });
        Self { port, replies, open }
    }

    pub(crate) fn set(
        &self,
        replies: impl Fn(&[Vec<u8>]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) {
        *self.replies.lock().unwrap() = Arc::new(replies);
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.open.load(Relaxed)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> Address {
        format!("redis://127.0.0.1:{}", self.port).parse().unwrap()
    }

    pub(crate) fn servers(&self) -> RedisServers {
        RedisServers::Single(vec![self.address()])
    }
}

fn serve(stream: TcpStream, replies: &Mutex<Arc<Replies>>) {
    let mut reader = BufReader::new(stream);
    while let Some(command) = read(&mut reader) {
        let replies = replies.lock().unwrap().clone();
        let Some(reply) = replies(&command) else { break };
        if reader.get_mut().write_all(&reply).is_err() {
            break;
        }
    }
    let _ = reader.get_mut().shutdown(Shutdown::Both);
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Vec<Vec<u8>>> {
    let number = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse::<usize>().ok()
    };
    let words = number(reader)?;
    let mut word = || {
        let mut word = vec![0; number(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        Some(word)
    };
    (0..words).map(|_| word()).collect()
}

/// Replies as a primary that has no session.
#[expect(clippy::unnecessary_wraps, reason = "the form of all replies")]
pub(crate) fn primary(command: &[Vec<u8>]) -> Option<Vec<u8>> {
    let info = |text: &str| format!("${}\r\n{text}\r\n", text.len()).into_bytes();
    Some(match (&*command[0], command.get(1).map(|word| &**word)) {
        (b"INFO", Some(b"server")) => info("run_id:r"),
        (b"INFO", _) => info("role:master\r\nmaster_replid:abc"),
        (b"SET", _) => b"+OK\r\n".to_vec(),
        _ => b"$-1\r\n".to_vec(),
    })
}

/// Returns whether the command looks for a session, not for what a check looks for.
pub(crate) fn is_lookup(command: &[Vec<u8>]) -> bool {
    matches!(&*command[0], b"GETDEL" | b"GET") && !command[1].ends_with(b"probe")
}

/// A path to a server whose answers may be late.
pub(crate) struct Proxy {
    port: u16,
    is_slow: Arc<AtomicBool>,
}

impl Proxy {
    /// Delays each piece of the answers by `delay` while it is slow.
    pub(crate) fn start(to: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_slow = Arc::<AtomicBool>::default();
        let slowness = is_slow.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (near_read, far_write) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || copy(near_read, far_write, || {}));
                let slowness = slowness.clone();
                std::thread::spawn(move || {
                    copy(far, near, || {
                        if slowness.load(Relaxed) {
                            std::thread::sleep(delay);
                        }
                    });
                });
            }
        });
        Self { port, is_slow }
    }

    pub(crate) fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Relaxed);
    }

    pub(crate) fn servers(&self) -> RedisServers {
        RedisServers::Single(vec![format!("redis://127.0.0.1:{}", self.port).parse().unwrap()])
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, before_write: impl Fn()) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length) = from.read(&mut buffer) {
        before_write();
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
