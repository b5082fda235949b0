//! A connection on which a test gives commands to a server.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::server::{HANG, eventually};

pub(crate) struct Admin(BufReader<TcpStream>);

impl Admin {
    pub(crate) fn try_connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(HANG)).unwrap();
        Some(Self(BufReader::new(stream)))
    }

    pub(crate) fn connect(port: u16) -> Self {
        Self::try_connect(port).expect("the server runs")
    }

    /// Runs a command of words; returns the reply, of an array its last value.
    pub(crate) fn run(&mut self, words: &str) -> String {
        let words: Vec<_> = words.split(' ').collect();
        self.run_words(&words)
    }

    pub(crate) fn run_words(&mut self, words: &[&str]) -> String {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            write!(command, "${}\r\n{word}\r\n", word.len()).unwrap();
        }
        if self.0.get_mut().write_all(command.as_bytes()).is_err() {
            return "-the connection has ended".to_owned();
        }
        self.reply()
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap_or_default();
        let line = line.trim_end();
        let count = || line[1..].parse::<i64>().unwrap();
        match line.bytes().next() {
            Some(b'$') if count() >= 0 => {
                let mut value = vec![0; count() as usize + 2];
                self.0.read_exact(&mut value).unwrap();
                String::from_utf8_lossy(&value[..value.len() - 2]).into_owned()
            }
            Some(b'*') => (0..count()).fold(String::new(), |_, _| self.reply()),
            Some(b'+' | b':') => line[1..].to_owned(),
            _ => line.to_owned(),
        }
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&mut self, words: &str) {
        assert_eq!(self.run(words), "OK", "{words}");
    }

    pub(crate) fn size(&mut self) -> String {
        self.run("DBSIZE")
    }

    /// Makes the server a replica and waits until it has the primary's data.
    pub(crate) fn replicate(&mut self, port: u16) {
        self.ok(&format!("REPLICAOF 127.0.0.1 {port}"));
        eventually("the replica is in step", || {
            self.run("INFO replication").contains("master_link_status:up")
        });
        // Otherwise its acknowledgements do not count yet.
        let mut primary = Self::connect(port);
        eventually("the primary knows that", || {
            primary.run("INFO replication").contains("state=online")
        });
    }
}
