//! Control commands from COMMAND while it runs: lines over an inherited socket, whose descriptor
//! number is in an environment variable.

use std::fmt::Display;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::FdFlags;

/// Environment variable with the descriptor of COMMAND's end.
pub(crate) const VARIABLE: &str = "PRONGHORN_LINK_CONTROL";
/// Maximum length of a line, far above that of any mark.
const MAX_LINE_BYTES: usize = 256;

/// A mark from COMMAND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadMark {
    /// The load begins: time zero is the first packet of the client's next flow, and measurements
    /// count from now on.
    Start,
    /// The load has ended: measurements count until now.
    End,
}

impl LoadMark {
    fn answer(self) -> &'static str {
        match self {
            Self::Start => "started",
            Self::End => "ended",
        }
    }
}

/// The link's end of the socket.
#[derive(Debug)]
pub(crate) struct Control {
    /// `None` after COMMAND's end was closed.
    socket: Option<UnixStream>,
    received: Vec<u8>,
}

impl Control {
    /// Returns the link's end, and COMMAND's.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        // COMMAND's end first, so that it gets the lower number: some shells support no descriptor
        // above 9.
        let (theirs, ours) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Self { socket: Some(ours), received: Vec::new() }, theirs.into()))
    }

    /// Makes programs started from now on inherit COMMAND's end. Returns name and value of the
    /// environment variable.
    pub(crate) fn hand_over(theirs: &OwnedFd) -> io::Result<(&'static str, String)> {
        rustix::io::fcntl_setfd(theirs, FdFlags::empty())?;
        Ok((VARIABLE, theirs.as_raw_fd().to_string()))
    }

    /// Returns the descriptor to poll; `None` when nothing more can arrive.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Executes received marks. Each mark is answered when done, or refused with the reason.
    pub(crate) fn handle<R: Display, E>(
        &mut self,
        mut carry_out: impl FnMut(LoadMark) -> Result<Result<(), R>, E>,
    ) -> Result<(), E> {
        self.read();
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            match parse(&line) {
                Ok(mark) => match carry_out(mark)? {
                    Ok(()) => self.answer(mark.answer()),
                    Err(refused) => self.answer(&format!("error: {refused}")),
                },
                Err(problem) => self.answer(&format!("error: {problem}")),
            }
        }
        if self.received.len() > MAX_LINE_BYTES {
            self.received.clear();
            self.answer(&format!(
                "error: a line of more than {MAX_LINE_BYTES} bytes: write `start` or `end`"
            ));
        }
        Ok(())
    }

    fn read(&mut self) {
        let mut bytes = [0; MAX_LINE_BYTES];
        while let Some(socket) = &mut self.socket {
            match socket.read(&mut bytes) {
                Ok(0) => self.socket = None,
                Ok(length) => {
                    self.received.extend_from_slice(&bytes[..length]);
                    if self.received.len() > MAX_LINE_BYTES {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.socket = None,
            }
        }
    }

    fn answer(&mut self, line: &str) {
        if let Some(socket) = &mut self.socket {
            // A client that does not read its answers, or is gone, needs no answer.
            let _ = socket.write_all(format!("{line}\n").as_bytes());
        }
    }
}

fn parse(line: &[u8]) -> Result<LoadMark, String> {
    let line = String::from_utf8_lossy(line);
    match line.trim() {
        "start" => Ok(LoadMark::Start),
        "end" => Ok(LoadMark::End),
        other => Err(format!("unknown order `{}`: write `start` or `end`", other.escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    fn take(control: &mut Control, mut take: impl FnMut(LoadMark)) {
        let taken: Result<(), ()> = control.handle(|mark| {
            take(mark);
            Ok(if mark == LoadMark::End { Err("not now") } else { Ok(()) })
        });
        taken.unwrap();
    }

    #[test]
    fn orders_are_executed_or_refused_before_they_are_answered() {
        let (mut control, theirs) = Control::new().unwrap();
        let mut theirs = UnixStream::from(theirs);
        let mut answers = BufReader::new(theirs.try_clone().unwrap()).lines();
        let mut marks = Vec::new();
        theirs.write_all(b"start\nend\r\n sta").unwrap();
        take(&mut control, |mark| marks.push(mark));
        assert_eq!(marks, [LoadMark::Start, LoadMark::End]);
        assert_eq!(
            [answers.next().unwrap().unwrap(), answers.next().unwrap().unwrap()],
            ["started", "error: not now"]
        );
        theirs.write_all(b"rt\nstop\n").unwrap();
        take(&mut control, |mark| marks.push(mark));
        assert_eq!(marks.len(), 3);
        assert_eq!(answers.next().unwrap().unwrap(), "started");
        assert_eq!(
            answers.next().unwrap().unwrap(),
            "error: unknown order `stop`: write `start` or `end`"
        );
    }

    #[test]
    fn endless_line_is_refused_and_a_closed_end_is_no_longer_polled() {
        let (mut control, theirs) = Control::new().unwrap();
        let mut theirs = UnixStream::from(theirs);
        theirs.write_all(&[b'x'; 10_000]).unwrap();
        for _ in 0..100 {
            take(&mut control, |_| panic!("no mark"));
        }
        assert!(control.received.len() <= MAX_LINE_BYTES);
        drop(theirs);
        for _ in 0..100 {
            take(&mut control, |_| panic!("no mark"));
        }
        assert!(control.fd().is_none());
    }
}
