//! Readiness of the worker's descriptors.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll as MioPoll, Registry, Token};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use slab::Slab;

const WAKEUP: Token = Token(usize::MAX);
const TIMER: Token = Token(usize::MAX - 1);
const EVENTS_PER_POLL: usize = 256;

/// An epoll set with everything that the worker waits for, including its timer and its wake-up, so
/// that one descriptor tells a host when to run a turn.
pub(crate) struct Reactor {
    poll: MioPoll,
    events: Events,
    timer: OwnedFd,
    armed: Option<Instant>,
    handle: ReactorHandle,
}

/// Registers sources.
#[derive(Clone)]
pub(crate) struct ReactorHandle {
    registry: Rc<Registry>,
    sources: Rc<RefCell<Slab<Rc<Readiness>>>>,
}

/// Whether one source is readable and writable, and the tasks that wait for it.
///
/// The poller is edge-triggered: a side stays ready until an operation has returned `WouldBlock`.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The peer has ended its side, or the source has failed. Reading reports it, and no event will
    /// again.
    ended: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

/// Keeps a source in the poller. Dropping it removes the source.
pub(crate) struct Registration {
    handle: ReactorHandle,
    key: usize,
    readiness: Rc<Readiness>,
}

impl Reactor {
    pub(crate) fn new() -> io::Result<(Self, mio::Waker)> {
        let poll = MioPoll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKEUP)?;
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
        let registry = Rc::new(poll.registry().try_clone()?);
        let handle = ReactorHandle { registry, sources: Rc::default() };
        let reactor = Self {
            poll,
            events: Events::with_capacity(EVENTS_PER_POLL),
            timer,
            armed: None,
            handle,
        };
        Ok((reactor, waker))
    }

    pub(crate) fn handle(&self) -> &ReactorHandle {
        &self.handle
    }

    /// Polls for events, waiting at most `timeout` (`None`: without a limit).
    ///
    /// Returns whether there may be more events than fitted.
    pub(crate) fn poll(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        }
        let mut taken = 0;
        for event in &self.events {
            taken += 1;
            match event.token() {
                WAKEUP => {}
                TIMER => {
                    self.armed = None;
                    // Reading resets the timer's edge. An error means that it was re-armed
                    // meanwhile.
                    let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                }
                Token(key) => {
                    let readiness = self.handle.sources.borrow().get(key).cloned();
                    if let Some(readiness) = readiness {
                        readiness.set(event);
                    }
                }
            }
        }
        Ok(taken == EVENTS_PER_POLL)
    }

    /// Makes the descriptor readable at `deadline`. An earlier deadline that is already armed
    /// stays: the turn that it causes arms the right one, which costs less than a system call each
    /// time that a deadline moves back. `now` is when the turn began; the time that the turn has
    /// taken since is not waited for again.
    pub(crate) fn arm(&mut self, now: Instant, deadline: Option<Instant>) -> io::Result<()> {
        let Some(deadline) = deadline else { return Ok(()) };
        if self.armed.is_some_and(|armed| armed <= deadline) {
            return Ok(());
        }
        // Zero would disarm the timer.
        let wait = deadline
            .saturating_duration_since(now.max(Instant::now()))
            .max(Duration::from_nanos(1));
        let value = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: wait.as_secs().cast_signed(),
                tv_nsec: wait.subsec_nanos().into(),
            },
        };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)?;
        self.armed = Some(deadline);
        Ok(())
    }
}

impl AsFd for Reactor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }
}

impl ReactorHandle {
    pub(crate) fn register(
        &self,
        source: &mut impl Source,
        interest: Interest,
    ) -> io::Result<Registration> {
        let readiness = Rc::new(Readiness::default());
        let key = self.sources.borrow_mut().insert(readiness.clone());
        if let Err(error) = source.register(&self.registry, Token(key), interest) {
            self.sources.borrow_mut().remove(key);
            return Err(error);
        }
        Ok(Registration { handle: self.clone(), key, readiness })
    }
}

impl Registration {
    /// Changes what the source waits for. A side that is already ready raises an event again.
    pub(crate) fn change(&self, source: &mut impl Source, interest: Interest) -> io::Result<()> {
        source.reregister(&self.handle.registry, Token(self.key), interest)
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.readiness
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.handle.sources.borrow_mut().try_remove(self.key);
    }
}

impl Readiness {
    fn set(&self, event: &mio::event::Event) {
        if event.is_read_closed() || event.is_error() {
            self.ended.set(true);
        }
        // A closed or failed side is ready too: the operation on it reports what happened.
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.readable.set(true);
            wake(&self.reader);
        }
        if event.is_writable() || event.is_write_closed() || event.is_error() {
            self.writable.set(true);
            wake(&self.writer);
        }
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable.get()
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable.get()
    }

    /// Called when reading has returned `WouldBlock`.
    pub(crate) fn clear_readable(&self) {
        self.readable.set(false);
    }

    /// Called when reading has returned less than the buffer could hold. The poller reports all
    /// data that arrives from here on, but not an end that it has already reported.
    pub(crate) fn clear_drained(&self) {
        if !self.ended.get() {
            self.readable.set(false);
        }
    }

    /// Called when writing has returned `WouldBlock`.
    pub(crate) fn clear_writable(&self) {
        self.writable.set(false);
    }

    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        poll_side(&self.readable, &self.reader, cx)
    }

    /// Ready when the peer has ended its side, or the source has failed, whether or not earlier
    /// data has been read. It uses the slot of the waker that waits to read.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        poll_side(&self.ended, &self.reader, cx)
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        poll_side(&self.writable, &self.writer, cx)
    }
}

fn poll_side(
    ready: &Cell<bool>,
    waiting: &RefCell<Option<Waker>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if ready.get() {
        return Poll::Ready(());
    }
    let mut waiting = waiting.borrow_mut();
    match &mut *waiting {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *waiting = Some(cx.waker().clone()),
    }
    Poll::Pending
}

fn wake(waiting: &RefCell<Option<Waker>>) {
    // Taken first: the waker's schedule function may call back here.
    let waker = waiting.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds until the descriptor becomes readable.
    fn left(reactor: &Reactor) -> f64 {
        let value = rustix::time::timerfd_gettime(&reactor.timer).unwrap().it_value;
        value.tv_sec as f64 + value.tv_nsec as f64 / 1e9
    }

    #[test]
    fn what_a_turn_has_taken_is_not_waited_for_again() {
        let (mut reactor, _waker) = Reactor::new().unwrap();
        let began = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        reactor.arm(began, Some(began + Duration::from_secs(600))).unwrap();
        let wait = left(&reactor);
        assert!(wait > 0.0 && wait <= 590.0, "{wait}");
    }

    #[test]
    fn clock_that_is_ahead_is_gone_by() {
        let (mut reactor, _waker) = Reactor::new().unwrap();
        let now = Instant::now() + Duration::from_secs(3600);
        reactor.arm(now, Some(now + Duration::from_secs(600))).unwrap();
        assert!(left(&reactor) > 500.0);
    }
}
